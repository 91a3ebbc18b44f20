"""Clock: the only way to read the time or to sleep.

Rule: wall time (`now_ms`) is for logs and records; deadlines use `monotonic_ms`.
Must not know: what waits, and for what. Tests use `runtime.manual_clock.ManualClock`.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Time in whole milliseconds."""

    def now_ms(self) -> int:
        """Return the wall time since the Unix epoch; it may jump in either direction."""
        ...

    def monotonic_ms(self) -> int:
        """Return a time that never goes back; only differences between two readings mean much."""
        ...

    async def sleep(self, ms: int) -> None:
        """Return after `ms` milliseconds of monotonic time; at once, but with a yield, for <= 0."""
        ...


def boot_ms() -> int:
    """Return a time that never goes back, and goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class SystemClock:
    """The clock of the machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Return the wall time since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return the machine's monotonic time."""
        return time.monotonic_ns() // 1_000_000

    async def sleep(self, ms: int) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(max(ms, 0) / 1000)
