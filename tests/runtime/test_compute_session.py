"""Sessions: a state that stays between calls, and how a process ends with its session."""

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kledger.batches.buffers import Buffer
from kledger.runtime.blocking import BlockingPool, InlinePool, PoolClosed
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.compute_process import ComputeProcessDied, ComputeProcesses
from kledger.runtime.compute_worker import AREA_BYTES, SHARED_BYTES
from tests.runtime import compute_calls
from tests.runtime.compute_calls import Log
from tests.runtime.test_compute_process import await_end, pool_of, until


@asynccontextmanager
async def pool_with(*, has_processes: bool) -> AsyncIterator[ComputePool]:
    """A pool, with processes or with threads alone."""
    pool = ComputePool(
        BlockingPool(1),
        cost_per_tick_max=0,
        processes=ComputeProcesses() if has_processes else None,
    )
    try:
        yield pool
    finally:
        pool.close()


@pytest.mark.parametrize("has_processes", [False, True])
async def test_calls_of_a_session_share_a_state_that_others_do_not_see(
    *, has_processes: bool
) -> None:
    async with (
        pool_with(has_processes=has_processes) as pool,
        pool.session(Log, "a") as first,
        pool.session(Log, "b") as second,
    ):
        buffers: list[Buffer] = [b"x", bytearray(), memoryview(b"yz")]
        name, count, process = await first.call(compute_calls.append, buffers, b"!")
        assert ("a", 3) == (name, count)
        assert has_processes == (process != os.getpid())
        assert ("a", 3, process) == await first.call(compute_calls.append, [], b"?")
        assert ("b", 1) == (await second.call(compute_calls.append, [b"v"], b""))[:2]
        assert [b"x!", b"!", b"yz!"] == await first.call(compute_calls.lines, [])
        assert [b"v"] == await second.call(compute_calls.lines, [])


async def test_many_and_large_buffers_arrive_whole() -> None:
    """One system call takes 1,024 buffers at most."""
    async with pool_of(ComputeProcesses()) as pool, pool.session(Log, "a") as session:
        sizes = [number % 7 for number in range(3000)] + [5_000_000, 3]
        buffers = [bytes([size % 251]) * size for size in sizes]
        await session.call(compute_calls.append, buffers, b"")
        assert buffers == await session.call(compute_calls.lines, [])


@pytest.mark.parametrize("count", [0, 1, 64, 65, 200])
async def test_buffers_of_a_result_come_back_with_their_items(count: int) -> None:
    async with pool_of(ComputeProcesses()) as pool, pool.session(Log, "a") as session:
        buffers = [bytes([number]) * (number * 1000) for number in range(count)]
        found = await session.call(compute_calls.halves, buffers)
        halves = [(len(each), each[: len(each) // 2]) for each in buffers]
        assert halves == [(size, bytes(half)) for size, half in found]


async def test_a_call_sees_its_own_data_alone_and_results_outlive_the_next_call() -> None:
    """The memory in which data and results travel is used again, by the second call after."""
    async with pool_of(ComputeProcesses()) as pool, pool.session(Log, "a") as session:
        ((_, long),) = await session.call(compute_calls.halves, [b"a" * 100_000])
        ((_, short),) = await session.call(compute_calls.halves, [b"b" * 10])
        assert (b"a" * 50_000, b"b" * 5) == (bytes(long), bytes(short))
        with pytest.raises(compute_calls.Refusal):
            await session.call(compute_calls.append_and_refuse, [b"x"])
        assert [b"x"] == await session.call(compute_calls.lines, [])


@pytest.mark.parametrize("has_processes", [False, True])
async def test_submitted_calls_are_made_in_order_each_with_its_own_data(
    *, has_processes: bool
) -> None:
    """Also those whose data does not fit into an area of the shared memory."""
    sizes = [10, AREA_BYTES, AREA_BYTES + 1, 20, SHARED_BYTES + 1, 30]
    values = [bytes([number]) * size for number, size in enumerate(sizes)]
    async with pool_with(has_processes=has_processes) as pool, pool.session(Log, "a") as session:
        pending = [await session.submit(compute_calls.append, [each], b"") for each in values]
        counts = [(await each)[1] for each in pending]
        assert list(range(1, len(values) + 1)) == counts
        assert values == await session.call(compute_calls.lines, [])


async def test_two_calls_are_under_way_at_most(tmp_path: Path) -> None:
    """The data of a third one would take the place of what the process reads."""
    path = tmp_path / "process"
    async with pool_of(ComputeProcesses()) as pool, pool.session(Log, "a") as session:
        call = compute_calls.never_return_with_state
        first = await session.submit(call, [], str(path))
        second = await session.submit(compute_calls.append, [b"x"], b"")
        third = asyncio.ensure_future(session.submit(compute_calls.append, [b"y"], b""))
        await until(path.exists)
        assert not third.done()
        await session.close()
        with pytest.raises((ComputeProcessDied, PoolClosed)):
            await third
        for each in (first, second):
            with pytest.raises((ComputeProcessDied, PoolClosed)):
                await each


@pytest.mark.parametrize("has_processes", [False, True])
async def test_a_submitted_call_raises_in_the_awaiting_caller(*, has_processes: bool) -> None:
    async with pool_with(has_processes=has_processes) as pool, pool.session(Log, "a") as session:
        refused = await session.submit(compute_calls.append_and_refuse, [b"x"])
        name, count, _ = await (await session.submit(compute_calls.append, [b"y"], b""))
        assert ("a", 2) == (name, count)
        with pytest.raises(compute_calls.Refusal):
            await refused


async def test_a_session_leaves_no_descriptors() -> None:
    gc.collect()  # what earlier tests have left does not close descriptors meanwhile
    before = set(os.listdir("/proc/self/fd"))
    processes = ComputeProcesses()
    async with pool_of(processes) as pool:
        for size in (10, SHARED_BYTES + 1):
            async with pool.session(Log, "a") as session:
                await session.call(compute_calls.halves, [bytes(size)])
        await until(lambda: set(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.parametrize("has_processes", [False, True])
async def test_what_a_call_raises_is_raised_and_the_state_stays(*, has_processes: bool) -> None:
    async with pool_with(has_processes=has_processes) as pool, pool.session(Log, "a") as session:
        with pytest.raises(compute_calls.Refusal, match="no") as refused:
            await session.call(compute_calls.append_and_refuse, [b"x"])
        assert (5,) == refused.value.records
        assert [b"x"] == await session.call(compute_calls.lines, [])


@pytest.mark.parametrize("has_processes", [False, True])
async def test_a_state_that_cannot_be_made_leaves_no_process(*, has_processes: bool) -> None:
    processes = ComputeProcesses() if has_processes else None
    pool = ComputePool(BlockingPool(1), cost_per_tick_max=0, processes=processes)
    with pytest.raises(compute_calls.Refusal, match="no state"):
        async with pool.session(compute_calls.refuse_to_start):
            pass
    assert processes is None or not processes.process_ids
    pool.close()


async def test_the_process_ends_with_the_session() -> None:
    processes = ComputeProcesses()
    async with pool_of(processes) as pool:
        async with pool.session(Log, "a") as session:
            assert 1 == len(processes.process_ids)
        assert [] == processes.process_ids
        with pytest.raises(PoolClosed):
            await session.call(compute_calls.lines, [])


async def test_calls_without_a_state_have_other_processes() -> None:
    processes = ComputeProcesses()
    async with pool_of(processes) as pool, pool.session(Log, "a") as session:
        _, _, process = await session.call(compute_calls.append, [], b"")
        ((_, _, other),) = await pool.map(compute_calls.length_and_process, [(b"", 0)])
        assert process != other


async def test_a_session_takes_no_thread_of_the_pool(tmp_path: Path) -> None:
    """A session of minutes must not stop the calls of others, whose threads are two."""
    path = tmp_path / "process"
    async with pool_of(ComputeProcesses(), threads=1) as pool, pool.session(Log, "a") as session:
        call = compute_calls.never_return_with_state
        running = asyncio.ensure_future(session.call(call, [], str(path)))
        await until(path.exists)
        assert [b"ba"] == await pool.map(compute_calls.reverse, [(b"ab",)])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_caller_that_is_cancelled_ends_the_process(tmp_path: Path) -> None:
    path = tmp_path / "process"
    processes = ComputeProcesses()
    async with pool_of(processes) as pool, pool.session(Log, "a") as session:
        call = compute_calls.never_return_with_state
        running = asyncio.ensure_future(session.call(call, [], str(path)))
        await until(path.exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: not processes.process_ids)
        with pytest.raises(ComputeProcessDied):
            await session.call(compute_calls.lines, [])


@pytest.mark.parametrize("ticks", range(6))
async def test_a_caller_that_is_cancelled_at_the_start_leaves_no_process(ticks: int) -> None:
    processes = ComputeProcesses()

    async def begin(pool: ComputePool) -> None:
        async with pool.session(Log, "a"):
            await asyncio.Event().wait()

    async with pool_of(processes) as pool:
        running = asyncio.ensure_future(begin(pool))
        for _ in range(ticks):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [] == processes.process_ids


async def test_in_a_thread_a_call_ends_soon_after_its_caller(tmp_path: Path) -> None:
    path = tmp_path / "process"
    async with pool_with(has_processes=False) as pool:
        async with pool.session(Log, "a") as session:
            call = compute_calls.never_return_with_state
            running = asyncio.ensure_future(session.call(call, [], str(path)))
            await until(path.exists)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert threading.get_ident() != await pool.run(threading.get_ident)


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_killed_process_fails_the_session(*, is_busy: bool, tmp_path: Path) -> None:
    path = tmp_path / "process"
    processes = ComputeProcesses()
    async with pool_of(processes) as pool, pool.session(Log, "a") as session:
        (process_id,) = processes.process_ids
        call = compute_calls.never_return_with_state
        running = asyncio.ensure_future(session.call(call, [], str(path))) if is_busy else None
        await until(lambda: not is_busy or path.exists())
        os.kill(process_id, signal.SIGKILL)
        with pytest.raises(ComputeProcessDied, match="-9"):
            await (running or session.call(compute_calls.lines, []))
        with pytest.raises(ComputeProcessDied, match="has ended"):
            await session.call(compute_calls.lines, [])
        async with pool.session(Log, "b") as another:
            assert [] == await another.call(compute_calls.lines, [])


async def test_a_process_that_dies_in_a_call_fails_it() -> None:
    async with pool_of(ComputeProcesses()) as pool, pool.session(Log, "a") as session:
        with pytest.raises(ComputeProcessDied, match="-9"):
            await session.call(compute_calls.die_with_state, [])


async def test_memory_has_the_limit_of_the_session() -> None:
    processes = ComputeProcesses(memory_bytes_max=40 << 20)
    call = compute_calls.allocate_in_state
    async with pool_of(processes) as pool:
        async with pool.session(Log, "a", memory_bytes_max=150 << 20) as session:
            assert 100 << 20 == await session.call(call, [], 100 << 20)
            with pytest.raises(ComputeProcessDied, match="memory"):
                await session.call(call, [], 200 << 20)
        with pytest.raises(ComputeProcessDied, match="memory"):
            await pool.map(compute_calls.allocate, [(b"", 100 << 20)])


async def test_closing_the_pool_ends_a_call_that_would_never_return(tmp_path: Path) -> None:
    path = tmp_path / "process"
    pool = ComputePool(BlockingPool(1), cost_per_tick_max=0, processes=ComputeProcesses())
    async with pool.session(Log, "a") as session:
        call = compute_calls.never_return_with_state
        running = asyncio.ensure_future(session.call(call, [], str(path)))
        await until(path.exists)
        pool.close()
        with pytest.raises(PoolClosed):
            await running
        await_end(int(path.read_text()))
    with pytest.raises(PoolClosed):
        async with pool.session(Log, "a"):
            pass


async def test_a_session_waits_for_longer_than_an_idle_process() -> None:
    async with pool_of(ComputeProcesses(idle_s=0)) as pool, pool.session(Log, "a") as session:
        await session.call(compute_calls.append, [b"x"], b"")
        await pool.map(compute_calls.reverse, [(b"ab",)])  # a process starts and ends
        assert [b"x"] == await session.call(compute_calls.lines, [])


@pytest.mark.parametrize("executable", ["/nonexistent", "/bin/false"])
async def test_without_processes_threads_make_the_calls(
    executable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    async with pool_of(ComputeProcesses()) as pool:
        for _ in range(2):
            async with pool.session(Log, "a") as session:
                found = await session.call(compute_calls.append, [b"x"], b"")
                assert ("a", 1, os.getpid()) == found


async def test_a_simulation_has_sessions_without_threads() -> None:
    pool = ComputePool(InlinePool(), cost_per_tick_max=0)
    before = threading.active_count()
    async with pool.session(Log, "a") as session:
        await session.call(compute_calls.append, [b"x"], b"")
        assert [b"x"] == await session.call(compute_calls.lines, [])
    assert before == threading.active_count()
