"""Deadlines as plain data, and the one task that sleeps for all of them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.runtime.containment import NamedUnit
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import STALE_MIN, Timers, TimerTable, within
from tests.contained import Contained
from tests.freed import without_collection


async def tick() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def fails() -> None:
    raise ValueError("broken")


def test_table_pops_due_keys_by_deadline_then_by_order_of_setting() -> None:
    table: TimerTable[str] = TimerTable()
    for key, deadline in (("c", 30), ("a", 10), ("late", 31), ("b", 10)):
        table.set(key, deadline)
    assert 10 == table.next_deadline_ms()
    assert ["a", "b", "c"] == table.pop_due(30)
    assert ["late"] == table.pop_due(1000)
    assert None is table.next_deadline_ms()


def test_table_set_again_moves_the_deadline_both_ways() -> None:
    table: TimerTable[str] = TimerTable()
    table.set("a", 10)
    table.set("a", 50)
    assert [] == table.pop_due(49)
    table.set("a", 20)
    assert 20 == table.next_deadline_ms()
    assert ["a"] == table.pop_due(20)
    assert [] == table.pop_due(100)


def test_table_cancel_returns_whether_there_was_a_deadline() -> None:
    table: TimerTable[str] = TimerTable()
    table.set("a", 10)
    assert (True, False) == (table.cancel("a"), table.cancel("a"))
    assert (None, 0) == (table.next_deadline_ms(), len(table))


def test_table_does_not_keep_what_was_cancelled() -> None:
    """A client that heartbeats for a year sets one key millions of times."""
    table: TimerTable[str] = TimerTable()
    for deadline in range(10_000):
        table.set("member", deadline)
    assert len(table._heap) <= 2 + STALE_MIN + 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "cancel", "pop"]), st.integers(0, 9), st.integers(0, 50))
    )
)
def test_table_agrees_with_a_plain_dict(steps: list[tuple[str, int, int]]) -> None:
    table: TimerTable[int] = TimerTable()
    model: dict[int, int] = {}
    for step, key, number in steps:
        if step == "set":
            table.set(key, number)
            model[key] = number
        elif step == "cancel":
            assert (model.pop(key, None) is not None) == table.cancel(key)
        else:
            due = table.pop_due(number)
            assert sorted(k for k, deadline in model.items() if deadline <= number) == sorted(due)
            assert sorted(due, key=model.__getitem__) == due
            model = {k: deadline for k, deadline in model.items() if deadline > number}
        assert min(model.values(), default=None) == table.next_deadline_ms()


async def test_timers_call_back_at_their_time_and_in_order() -> None:
    clock, supervisor, called = ManualClock(), Supervisor(), list[str]()
    timers = Timers(clock, supervisor)
    timers.call_at(30, lambda: called.append("30"))
    timers.call_at(10, lambda: called.append("10"))
    timers.call_after(20, lambda: called.append("20"))
    await tick()
    clock.advance(9)
    await tick()
    assert [] == called
    clock.advance(11)
    await tick()
    assert ["10", "20"] == called
    clock.advance(10)
    await tick()
    assert ["10", "20", "30"] == called
    assert 0 == supervisor.task_count, "nothing is left to sleep for"


async def test_cancelled_timer_does_not_call() -> None:
    clock, supervisor, called = ManualClock(), Supervisor(), list[str]()
    timers = Timers(clock, supervisor)
    handle = timers.call_at(10, lambda: called.append("a"))
    timers.call_at(10, lambda: called.append("b"))
    assert handle.is_pending
    handle.cancel()
    assert not handle.is_pending
    await tick()
    clock.advance(10)
    await tick()
    assert ["b"] == called


async def test_callback_may_set_an_earlier_timer_than_all_others() -> None:
    """The task that fires must not be cancelled by its own callback."""
    clock, supervisor, called = ManualClock(), Supervisor(), list[str]()
    timers = Timers(clock, supervisor)

    def first() -> None:
        called.append("first")
        timers.call_after(1, lambda: called.append("nested"))

    timers.call_at(10, first)
    timers.call_at(500, lambda: called.append("last"))
    await tick()
    clock.advance(10)
    await tick()
    clock.advance(1)
    await tick()
    assert ["first", "nested"] == called
    clock.advance(489)
    await tick()
    assert ["first", "nested", "last"] == called


async def test_callback_set_in_the_past_is_called_on_the_next_tick() -> None:
    clock, supervisor, called = ManualClock(), Supervisor(), list[str]()
    timers = Timers(clock, supervisor)
    clock.advance(100)
    timers.call_at(5, lambda: called.append("past"))
    assert [] == called
    await tick()
    assert ["past"] == called


async def test_many_timers_share_one_task() -> None:
    clock, supervisor = ManualClock(), Supervisor()
    timers = Timers(clock, supervisor)
    for number in range(1000):
        timers.call_at(1000 + number, lambda: None)
    await tick()
    assert (1000, 1, 1) == (len(timers), supervisor.task_count, clock.sleeper_count)
    await supervisor.close()


async def test_callback_that_raises_ends_neither_the_server_nor_other_timers(
    contained: Contained,
) -> None:
    """The task of all timers died of it, and no timer that was set later ever fired."""
    crashed, closed, fired = list[BaseException](), list[str](), list[int]()
    clock, supervisor = ManualClock(), Supervisor(crashed.append)
    timers = Timers(clock, supervisor)
    unit = NamedUnit("subscription", "orders", lambda: closed.append("orders"))
    timers.call_at(0, fails, unit)
    timers.call_at(0, lambda: fired.append(1))
    timers.call_at(10, fails)
    timers.call_at(20, lambda: fired.append(2))
    await tick()
    for _ in range(2):
        clock.advance(10)
        await tick()
    timers.call_after(10, lambda: fired.append(3))
    clock.advance(10)
    await tick()
    assert ([], ["orders"], [1, 2, 3]) == (crashed, closed, fired)
    assert {
        'contained_faults{unit="subscription"}': 1,
        'contained_faults{unit="timer"}': 1,
    } == supervisor.containment.metrics.snapshot()
    assert "a fault here closes subscription orders" == contained.messages[0]
    await supervisor.close()


async def test_a_timer_that_has_fired_releases_its_callback() -> None:
    """Its owner often keeps the handle, and was in a cycle with it."""

    class Setter:
        def __init__(self, timers: Timers, deadline_ms: int) -> None:
            self.handle = timers.call_at(deadline_ms, self.called, NamedUnit("test", "setter"))

        def called(self) -> None:
            pass

    clock = ManualClock()
    supervisor = Supervisor()
    timers = Timers(clock, supervisor)
    with without_collection() as freed:
        fired, cancelled = Setter(timers, 10), Setter(timers, 20)
        freed.watch(fired=fired, cancelled=cancelled)
        cancelled.handle.cancel()
        await tick()
        clock.advance(10)
        await tick()
        del fired, cancelled
        assert [] == freed.left()
    await supervisor.close()


async def test_work_within_its_time_is_returned_and_leaves_no_deadline() -> None:
    clock = ManualClock()
    timers = Timers(clock, Supervisor())
    soon: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(soon.set_result, 7)
    assert 7 == await within(timers, 10, soon)
    assert 0 == len(timers)


async def test_work_that_takes_too_long_is_cancelled() -> None:
    clock = ManualClock()
    timers = Timers(clock, Supervisor())
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(within(timers, 10, never))
    await tick()
    clock.advance(9)
    await tick()
    assert not waiting.done()
    clock.advance(1)
    with pytest.raises(TimeoutError, match="not done within 10 ms"):
        await waiting
    assert never.cancelled()


async def test_cancellation_by_another_caller_ends_the_task() -> None:
    timers = Timers(ManualClock(), Supervisor())
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(within(timers, 10, never))
    await tick()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert 0 == len(timers)
