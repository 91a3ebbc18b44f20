"""Signal: "the state has changed" for any number of waiters, with no lost wake-up.

Rule: a waiter reads `version` first, then reads the state, then waits beyond that version; a change
between reading and waiting ends the wait at once. Waiters are woken in the order in which they
began to wait. A signal carries no data.
Must not know: what changed.
"""

import asyncio


class Signal:
    """A counter of changes that can be waited on. For one event loop only."""

    __slots__ = ("_waiters", "version")

    def __init__(self) -> None:
        self.version = 0
        self._waiters: dict[asyncio.Future[None], None] = {}

    @property
    def waiter_count(self) -> int:
        """How many coroutines wait now."""
        return len(self._waiters)

    def notify(self) -> None:
        """Count one change and end every wait that has begun."""
        self.version += 1
        if self._waiters:
            waiters, self._waiters = self._waiters, {}
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self) -> None:
        """Wait for the next change from now on."""
        await self.wait_beyond(self.version)

    async def wait_beyond(self, version: int) -> int:
        """Wait until `version` is in the past; return the version that is reached.

        Args:
            version: what `self.version` said before the caller looked at the state.
        """
        if self.version <= version:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = None
            try:
                await waiter
            finally:
                self._waiters.pop(waiter, None)
        return self.version
