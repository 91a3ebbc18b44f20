"""Simulated clock: the virtual time of a schedule behind the interface of `runtime.clock`.

Rule: wall time and monotonic time move together; sleepers are timers of the loop.
Must not know: what sleeps.
"""

import asyncio

from tests.simulation.schedule import Schedule

BEGINNING_MS = 1_000_000


class SimulatedClock:
    """A `Clock`."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def now_ms(self) -> int:
        return BEGINNING_MS + self._schedule.now_us // 1000

    def monotonic_ms(self) -> int:
        return self._schedule.now_us // 1000

    async def sleep(self, ms: int) -> None:
        if ms <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        wake: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(ms / 1000, _wake, wake)
        try:
            await wake
        finally:
            timer.cancel()


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
