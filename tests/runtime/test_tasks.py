"""No background task is forgotten: crashes are reported, the rest is ended by close()."""

import asyncio
import gc
from typing import Any

import pytest

from kledger.runtime.containment import NamedUnit
from kledger.runtime.tasks import Supervisor
from tests.contained import Contained


async def tick() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def returns(value: int) -> int:
    return value


async def crashes() -> None:
    raise ValueError("broken")


async def test_spawned_task_returns_its_result_and_is_released() -> None:
    supervisor = Supervisor()
    assert 7 == await supervisor.spawn(returns(7), "seven")
    await tick()
    assert 0 == supervisor.task_count


async def test_crash_is_reported_once_with_its_error() -> None:
    crashed: list[BaseException] = []
    supervisor = Supervisor(crashed.append)
    supervisor.spawn(crashes(), "bad")
    await tick()
    assert ["broken"] == [str(error) for error in crashed]
    await supervisor.close()


async def test_crash_of_a_task_with_a_unit_closes_the_unit_and_not_the_server(
    contained: Contained,
) -> None:
    crashed, closed = list[BaseException](), list[str]()
    supervisor = Supervisor(crashed.append)
    unit = NamedUnit("subscription", "orders", lambda: closed.append("orders"))
    supervisor.spawn(crashes(), "bad", unit=unit)
    waits = supervisor.spawn(asyncio.Event().wait(), "waits", unit=unit)
    assert 7 == await supervisor.spawn(returns(7), "seven", unit=unit)
    waits.cancel()
    await tick()
    assert ([], ["orders"], 0) == (crashed, closed, supervisor.task_count)
    assert ["a fault here closes subscription orders"] == contained.messages


async def test_nothing_runs_between_the_crash_of_a_task_and_the_end_of_its_unit(
    contained: Contained,
) -> None:
    """The unit closed one tick later, and other callbacks used it meanwhile."""
    supervisor, order = Supervisor(), list[str]()

    async def crashes_before_others() -> None:
        asyncio.get_running_loop().call_soon(order.append, "another callback")
        raise ValueError("broken")

    unit = NamedUnit("subscription", "orders", lambda: order.append("closed"))
    task = supervisor.spawn(crashes_before_others(), "bad", unit=unit)
    await tick()
    assert ["closed", "another callback"] == order
    assert ["a fault here closes subscription orders"] == contained.messages
    with pytest.raises(ValueError, match="broken"):
        await task


async def test_task_with_a_unit_that_never_began_leaves_no_warning() -> None:
    supervisor = Supervisor()
    task = supervisor.spawn(crashes(), "bad", unit=NamedUnit("subscription", "orders"))
    task.cancel()
    await tick()
    del task
    gc.collect()  # pytest makes a warning about a coroutine that was never awaited an error
    assert 0 == supervisor.task_count


async def test_cancelled_task_is_no_crash() -> None:
    crashed: list[BaseException] = []
    supervisor = Supervisor(crashed.append)
    task = supervisor.spawn(asyncio.Event().wait(), "waits")
    await tick()
    task.cancel()
    await tick()
    assert [] == crashed


async def test_close_cancels_and_awaits_what_still_runs() -> None:
    supervisor, ended = Supervisor(), list[str]()

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    supervisor.spawn(slow_to_end(), "slow")
    await tick()
    await supervisor.close()
    await supervisor.close()
    assert ["cleaned up"] == ended
    assert 0 == supervisor.task_count


async def test_close_from_one_of_its_own_tasks_does_not_wait_for_itself() -> None:
    supervisor = Supervisor()
    other = supervisor.spawn(asyncio.Event().wait(), "other")
    await supervisor.spawn(supervisor.close(), "closer")
    assert other.cancelled()


async def test_spawn_after_close_is_refused() -> None:
    supervisor = Supervisor()
    await supervisor.close()
    with pytest.raises(RuntimeError, match="cannot start late"):
        supervisor.spawn(returns(1), "late")


async def test_finished_work_returns_and_raises_to_its_caller_alone() -> None:
    crashed: list[BaseException] = []
    supervisor = Supervisor(crashed.append)
    assert 7 == await supervisor.finish(returns(7), "seven")
    with pytest.raises(ValueError, match="broken"):
        await supervisor.finish(crashes(), "bad")
    await tick()
    assert ([], 0) == (crashed, supervisor.task_count)


async def test_finish_continues_when_its_caller_is_cancelled() -> None:
    supervisor, going, ended = Supervisor(), asyncio.Event(), list[str]()

    async def work() -> None:
        await going.wait()
        ended.append("done")

    caller = asyncio.ensure_future(supervisor.finish(work(), "work"))
    await tick()
    caller.cancel()
    await tick()
    assert (True, []) == (caller.cancelled(), ended)
    going.set()
    await tick()
    assert (["done"], 0) == (ended, supervisor.task_count)
    await supervisor.close()
    with pytest.raises(RuntimeError):
        await supervisor.finish(returns(7), "late")


async def test_error_of_finish_after_a_cancelled_caller_is_no_crash() -> None:
    """The event loop would report it, at some odd moment, as an exception never retrieved."""
    supervisor, going, reported = Supervisor(), asyncio.Event(), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def work() -> None:
        await going.wait()
        raise ValueError("broken")

    caller = asyncio.ensure_future(supervisor.finish(work(), "work"))
    await tick()
    caller.cancel()
    await tick()
    going.set()
    await tick()
    del caller
    gc.collect()
    assert ([], 0) == (reported, supervisor.task_count)


async def test_close_cancels_tasks_in_the_order_in_which_they_began() -> None:
    supervisor, ended = Supervisor(), list[int]()

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    for number in range(50):
        supervisor.spawn(work(number), "endless")
    await tick()
    await supervisor.close()
    assert list(range(50)) == ended


async def test_close_cancels_work_to_be_finished() -> None:
    supervisor = Supervisor()
    caller = asyncio.ensure_future(supervisor.finish(asyncio.Event().wait(), "endless"))
    await tick()
    await supervisor.close()
    with pytest.raises(asyncio.CancelledError):
        await caller
