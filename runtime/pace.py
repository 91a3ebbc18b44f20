"""Pace: lets background work through piece by piece, one in every period.

Rule: this is the only place that knows the library asyncio-throttle. It reads the machine's clock
and cannot be given another one, so a clock of a test or a simulation gets the few lines below
instead: the same face, the same spacing.
Must not know: what is paced.
"""

from typing import Protocol

from asyncio_throttle.throttler import Throttler

from kledger.runtime.clock import Clock, SystemClock

POLLS_PER_PERIOD = 4
"""Throttler asks the time again and again while it waits: this often at most."""


class Pace(Protocol):
    """What a worker knows of it."""

    async def acquire(self) -> None:
        """Return when the next piece may begin."""
        ...


def pace_by(clock: Clock, *, period_ms: float) -> Pace:
    """Return a pace of one piece in every period; the first one may begin at once."""
    if isinstance(clock, SystemClock):
        seconds = period_ms / 1000
        return Throttler(1, period=seconds, retry_interval=seconds / POLLS_PER_PERIOD)
    return _ClockPace(clock, max(1, round(period_ms)))


class _ClockPace:
    """The pace of a clock that is not the machine's. For one worker."""

    def __init__(self, clock: Clock, period_ms: int) -> None:
        self._clock = clock
        self._period_ms = period_ms
        self._next_ms = clock.monotonic_ms()

    async def acquire(self) -> None:
        """Wait until a period is over since the piece before."""
        while (left_ms := self._next_ms - self._clock.monotonic_ms()) > 0:
            await self._clock.sleep(left_ms)
        self._next_ms = self._clock.monotonic_ms() + self._period_ms
