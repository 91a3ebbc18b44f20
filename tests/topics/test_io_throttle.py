"""I/O throttle: the average is below the limit, also when it changes."""

import asyncio
import math

from kledger.runtime.manual_clock import ManualClock
from kledger.topics.io_throttle import CHECK_MS, IoThrottle


async def passed_ms(throttle: IoThrottle, clock: ManualClock, sizes: list[int]) -> list[int]:
    """Take bytes one after the other; return when each was given."""
    given: list[int] = []

    async def take_all() -> None:
        for size in sizes:
            await throttle.take(size)
            given.append(clock.monotonic_ms())

    taking = asyncio.ensure_future(take_all())
    while not taking.done():
        for _ in range(3):
            await asyncio.sleep(0)
        clock.advance(clock.sleeper_count)
    return given


async def test_each_step_waits_for_the_bytes_of_those_before() -> None:
    clock = ManualClock()
    throttle = IoThrottle(clock, lambda: 1_000_000)
    assert [0, 500, 500, 1_500] == await passed_ms(throttle, clock, [500_000, 0, 1_000_000, 1])


async def test_time_without_work_is_not_saved_up() -> None:
    clock = ManualClock()
    throttle = IoThrottle(clock, lambda: 1_000_000)
    clock.advance(10_000)
    assert [10_000, 10_100] == await passed_ms(throttle, clock, [100_000, 1])


async def test_what_was_not_taken_is_saved_for_one_burst() -> None:
    clock = ManualClock()
    throttle = IoThrottle(clock, lambda: 1_000, lambda: 500)
    assert [0, 0, 1_000] == await passed_ms(throttle, clock, [500, 1_000, 1])
    clock.advance(10_000)
    assert [11_000, 11_000, 11_001] == await passed_ms(throttle, clock, [500, 1, 1])


async def test_steps_without_a_limit_take_what_was_saved() -> None:
    clock, limits = ManualClock(), [math.inf]
    throttle = IoThrottle(clock, lambda: limits[0], lambda: 500)
    await throttle.take(1_000)
    await throttle.take(1_000)
    limits[0] = 1_000
    assert [1_000] == await passed_ms(throttle, clock, [1])


async def test_several_have_one_limit_together() -> None:
    clock = ManualClock()
    throttle = IoThrottle(clock, lambda: 1_000)
    await throttle.take(2_000)
    assert [2_000] == await passed_ms(throttle, clock, [1])


async def test_a_limit_that_changes_counts_for_what_waits() -> None:
    clock, limits = ManualClock(), [1.0]
    throttle = IoThrottle(clock, lambda: limits[0])
    await throttle.take(1_000_000)
    waiting = asyncio.ensure_future(throttle.take(1))
    await asyncio.sleep(0)
    limits[0] = 1_000_000.0
    clock.advance(CHECK_MS)
    await waiting
    assert CHECK_MS == clock.monotonic_ms()


async def test_without_a_limit_nothing_waits() -> None:
    clock = ManualClock()
    throttle = IoThrottle(clock, lambda: math.inf)
    assert [0, 0, 0] == await passed_ms(throttle, clock, [1 << 40, 1 << 40, 1])
