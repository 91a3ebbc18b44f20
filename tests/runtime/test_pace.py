"""Pieces keep their distance by whatever clock there is."""

import asyncio

from asyncio_throttle.throttler import Throttler

from kledger.runtime.clock import SystemClock
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.pace import pace_by


async def test_one_piece_comes_in_every_period() -> None:
    clock = ManualClock()
    pace = pace_by(clock, period_ms=100)
    begun: list[int] = []

    async def work() -> None:
        for _ in range(4):
            await pace.acquire()
            begun.append(clock.monotonic_ms())

    task = asyncio.ensure_future(work())
    for _ in range(40):
        await asyncio.sleep(0)
        clock.advance(10)
    await task
    assert [0, 100, 200, 300] == begun


async def test_pause_is_not_made_up_for() -> None:
    clock = ManualClock()
    pace = pace_by(clock, period_ms=100)
    await pace.acquire()
    clock.advance(1000)
    await pace.acquire()
    waiting = asyncio.ensure_future(pace.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.advance(100)
    await waiting


async def test_machine_clock_is_the_librarys() -> None:
    """It has no other, so what it is told is all that can be looked at without waiting."""
    pace = pace_by(SystemClock(), period_ms=20)
    await pace.acquire()
    assert isinstance(pace, Throttler)
    assert (1, 0.02, 0.005) == (pace.rate_limit, pace.period, pace.retry_interval)
