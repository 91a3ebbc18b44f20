"""ManualClock: a clock that stands still until a test moves it.

Rule: time moves only in `advance`, which wakes the sleepers that became due in the order of their
deadlines; sleepers of one deadline wake in the order in which they began to sleep. Any thread may
move it, also while sleepers of another thread's loop wait; sleepers of one loop keep their order.
Must not know: the real time.
"""

import asyncio
import heapq
from contextlib import suppress
from itertools import count
from threading import Lock


class ManualClock:
    """A `Clock` for tests and simulations."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0
        self._order = count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._lock = Lock()

    def now_ms(self) -> int:
        """Return the wall time that was set and advanced."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Return the sum of all advances."""
        return self._monotonic_ms

    @property
    def sleeper_count(self) -> int:
        """How many sleepers wait; lets a test see that its subject went to sleep."""
        with self._lock:
            return sum(not future.done() for _, _, future in self._sleepers)

    def advance(self, ms: int) -> None:
        """Move both times on by `ms` and wake the sleepers that are due, for the next tick."""
        assert ms >= 0, f"time cannot go back by {-ms} ms"
        due: list[asyncio.Future[None]] = []
        with self._lock:
            self._now_ms += ms
            self._monotonic_ms += ms
            while self._sleepers and self._sleepers[0][0] <= self._monotonic_ms:
                due.append(heapq.heappop(self._sleepers)[2])
        for future in due:
            loop = future.get_loop()
            if loop is _running_loop() or not loop.is_running():
                _wake(future)
            else:
                with suppress(RuntimeError):  # the loop has just ended, and its sleepers with it
                    loop.call_soon_threadsafe(_wake, future)

    def jump_wall(self, ms: int) -> None:
        """Move the wall time alone, in either direction, as an operator or NTP would."""
        with self._lock:
            self._now_ms += ms

    async def sleep(self, ms: int) -> None:
        """Wait until advances add up to `ms`; at once, but with a yield, for <= 0."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if ms <= 0:
            await asyncio.sleep(0)
            return
        with self._lock:
            heapq.heappush(self._sleepers, (self._monotonic_ms + ms, next(self._order), future))
        await future


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop of this thread, None in a thread without one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
