"""The clock of tests: nothing happens until advance()."""

import asyncio
from threading import Event, Thread

from kledger.runtime.manual_clock import ManualClock


async def tick() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def sleeper(clock: ManualClock, ms: int, woken: list[int]) -> None:
    await clock.sleep(ms)
    woken.append(ms)


async def test_advance_wakes_due_sleepers_in_order_of_time() -> None:
    clock, woken = ManualClock(), list[int]()
    tasks = [asyncio.ensure_future(sleeper(clock, ms, woken)) for ms in (30, 10, 20, 99)]
    await tick()
    assert 4 == clock.sleeper_count
    clock.advance(30)
    await tick()
    assert [10, 20, 30] == woken
    assert 1 == clock.sleeper_count
    clock.advance(69)
    await asyncio.gather(*tasks)
    assert [10, 20, 30, 99] == woken


async def test_advance_moves_wall_and_monotonic_time_together() -> None:
    clock = ManualClock(now_ms=5_000)
    clock.advance(7)
    assert (5_007, 7) == (clock.now_ms(), clock.monotonic_ms())


async def test_jump_of_the_wall_time_wakes_no_sleeper() -> None:
    clock, woken = ManualClock(now_ms=5_000), list[int]()
    task = asyncio.ensure_future(sleeper(clock, 10, woken))
    await tick()
    clock.jump_wall(-4_000)
    await tick()
    assert (1_000, 0, []) == (clock.now_ms(), clock.monotonic_ms(), woken)
    task.cancel()


async def test_cancelled_sleeper_is_skipped() -> None:
    clock, woken = ManualClock(), list[int]()
    task = asyncio.ensure_future(sleeper(clock, 10, woken))
    await tick()
    task.cancel()
    await tick()
    clock.advance(10)
    await tick()
    assert [] == woken


def test_other_threads_may_advance_while_a_loop_sleeps() -> None:
    """A future that is settled in the wrong thread leaves its loop asleep."""
    clock, woken, began, ended = ManualClock(), list[int](), Event(), Event()

    async def program() -> None:
        sleepers = [asyncio.ensure_future(sleeper(clock, ms, woken)) for ms in (30, 10, 20)]
        await tick()
        began.set()
        await asyncio.gather(*sleepers)
        ended.set()

    thread = Thread(target=asyncio.run, args=(program(),), daemon=True)
    thread.start()
    assert began.wait(60)
    clock.advance(30)
    assert ended.wait(60)
    thread.join()
    assert [10, 20, 30] == woken


async def test_sleep_of_nothing_returns_without_advance() -> None:
    await ManualClock().sleep(0)
