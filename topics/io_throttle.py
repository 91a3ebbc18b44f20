"""I/O throttle: limits what background work reads and writes in a second.

Rule: on average, the sum of everything is below the limit; one step may go beyond it, and the next
ones wait for that. A limit that changes counts from the next step on.
Must not know: what is read or written.

Source of the rule: Kafka's log cleaner, `log.cleaner.io.max.bytes.per.second`.
"""

from collections.abc import Callable

from kledger.runtime.clock import Clock

WAIT_MS_MAX = 60_000
"""A wait ends after this time, to look at the limit again."""


class IoThrottle:
    """The limit of all background work of one kind together."""

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], float]) -> None:
        """Args: bytes_per_second: the limit at present, at least 1; infinity for none."""
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._free_at_ms = 0.0
        """When everything that was read and written is paid for."""

    async def take(self, size: int) -> None:
        """Wait until bytes may be read or written; count them."""
        while (wait_ms := self._free_at_ms - self._clock.monotonic_ms()) >= 1:
            await self._clock.sleep(int(min(wait_ms, WAIT_MS_MAX)))
        begin_ms = max(self._free_at_ms, self._clock.monotonic_ms())
        self._free_at_ms = begin_ms + size * 1000 / max(1.0, self._bytes_per_second())
