"""The simulated loop keeps asyncio's order where there is one, and draws it where there is none."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from tests.simulation.clock import SimulatedClock
from tests.simulation.invariants import InvariantBroken
from tests.simulation.loop import SimulatedLoop
from tests.simulation.schedule import Pace, Schedule
from tests.simulation.threads import SimulatedPool

PACE = Pace(callback_us=10, work_us=(100,))


def new_loop(seed: int) -> tuple[SimulatedLoop, Schedule]:
    schedule = Schedule(Random(seed), PACE)
    return SimulatedLoop(schedule), schedule


def orders(run: Callable[[int], list[str]]) -> set[tuple[str, ...]]:
    """Return the orders of 50 seeds; each seed reproduces its order."""
    found = set()
    for seed in range(50):
        order = run(seed)
        assert order == run(seed)
        found.add(tuple(order))
    return found


def test_callbacks_run_first_in_first_out() -> None:
    def run(seed: int) -> list[str]:
        loop, _ = new_loop(seed)
        order: list[str] = []

        async def main() -> None:
            loop.call_soon(order.append, "first")
            other = loop.create_task(note("second"))
            loop.call_soon(order.append, "third")
            await other

        async def note(text: str) -> None:
            order.append(text)

        loop.run(main())
        loop.end()
        return order

    assert {("first", "second", "third")} == orders(run)


def test_threads_overtake_each_other_and_the_loop() -> None:
    def run(seed: int) -> list[str]:
        loop, schedule = new_loop(seed)
        pool, order = SimulatedPool(schedule), list[str]()

        async def call(name: str) -> None:
            await pool.run(order.append, f"{name} runs")
            order.append(f"{name} is reported")

        async def main() -> None:
            calls = [loop.create_task(call(name)) for name in "ab"]
            await asyncio.wait(calls)

        loop.run(main())
        loop.end()
        return order

    found = orders(run)
    assert ("a runs", "b runs", "a is reported", "b is reported") in found
    assert ("a runs", "b runs", "b is reported", "a is reported") in found
    assert ("b runs", "b is reported", "a runs", "a is reported") in found


def test_a_thread_may_report_in_the_middle_of_a_callback() -> None:
    def run(seed: int) -> list[str]:
        loop, schedule = new_loop(seed)
        order: list[str] = []

        def thread() -> None:
            loop.call_soon_threadsafe(order.append, "thread")

        async def main() -> None:
            schedule.after(5, thread)
            loop.call_soon(order.append, "before")
            loop.call_soon(order.append, "behind")
            await SimulatedClock(schedule).sleep(1)

        loop.run(main())
        loop.end()
        return order

    assert ("before", "thread", "behind") in orders(run)


def test_timers_of_one_moment_come_in_any_order_and_others_in_theirs() -> None:
    def run(seed: int) -> list[str]:
        loop, schedule = new_loop(seed)
        clock, order = SimulatedClock(schedule), list[str]()

        async def sleep(name: str, ms: int) -> None:
            await clock.sleep(ms)
            order.append(name)

        async def main() -> None:
            await asyncio.gather(sleep("late", 30), sleep("a", 20), sleep("b", 20))

        loop.run(main())
        loop.end()
        return order

    assert {("a", "b", "late"), ("b", "a", "late")} == orders(run)


def test_a_timer_is_cancelled_with_its_sleeper() -> None:
    loop, schedule = new_loop(1)
    clock = SimulatedClock(schedule)

    async def main() -> None:
        sleeper = loop.create_task(clock.sleep(1000))
        await asyncio.sleep(0)
        sleeper.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeper

    loop.run(main())
    assert 1000 > clock.monotonic_ms()
    loop.end()


def test_waiting_for_what_never_comes_is_broken() -> None:
    loop, _ = new_loop(1)

    async def main() -> None:
        await loop.create_future()

    with pytest.raises(InvariantBroken, match="nothing will ever happen"):
        loop.run(main())
    loop.end()


def test_what_a_callback_raises_ends_the_run() -> None:
    loop, schedule = new_loop(1)

    async def main() -> None:
        loop.call_soon(divmod, 1, 0)
        await SimulatedClock(schedule).sleep(1)

    with pytest.raises(ZeroDivisionError):
        loop.run(main())
    loop.end()
