"""Compute processes: what comes back, when they end, and what their end means for a call."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kledger.batches.buffers import Buffer
from kledger.batches.time_search import first_since
from kledger.batches.validation import check_records
from kledger.runtime.blocking import BlockingPool, PoolClosed
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.compute_process import NICENESS, ComputeProcessDied, ComputeProcesses
from kledger.subscriptions.entry_view import records_by_key_hash
from tests.runtime import compute_calls

GUARD_S = 60
HAS_AUTOGROUPS = Path("/proc/self/autogroup").exists()


@asynccontextmanager
async def pool_of(processes: ComputeProcesses, threads: int = 2) -> AsyncIterator[ComputePool]:
    pool = ComputePool(BlockingPool(threads), cost_per_tick_max=0, processes=processes)
    try:
        yield pool
    finally:
        pool.close()
        assert [] == processes.process_ids


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(GUARD_S):
        while not condition():  # noqa: ASYNC110 (ticks, no time)
            await asyncio.sleep(0)


def await_end(process_id: int) -> None:
    """Wait until a process that is no child has ended."""
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([descriptor], [], [], GUARD_S)
    os.close(descriptor)
    assert ended


async def test_jobs_are_done_in_order_in_another_process_with_their_data() -> None:
    async with pool_of(ComputeProcesses()) as pool:
        jobs: list[tuple[Buffer, int]] = [
            (b"", 1),
            (bytes(3_000_000), 2),
            (memoryview(bytearray(b"abc")), 3),
        ]
        found = await pool.map(compute_calls.length_and_process, jobs)
        assert [(0, 1), (3_000_000, 2), (3, 3)] == [(size, number) for size, number, _ in found]
        assert {os.getpid()}.isdisjoint(process for _, _, process in found)
        assert [b"cba", b"", b"ed"] == await pool.map(
            compute_calls.reverse, [(b"abc",), (b"",), (b"de",)]
        )


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 128, 1000])
async def test_long_results_come_whole(count: int) -> None:
    async with pool_of(ComputeProcesses()) as pool:
        expected = tuple((number, number * number) for number in range(count))
        jobs = [(b"x", count), (b"y", count)]
        assert [expected, expected] == await pool.map(compute_calls.numbers, jobs)


async def test_one_process_makes_one_call_after_the_other_and_two_make_two_at_a_time() -> None:
    processes = ComputeProcesses()
    async with pool_of(processes) as pool:
        call, jobs = compute_calls.length_and_process, [(b"", 0)]
        first = [(await pool.map(call, jobs))[0] for _ in range(3)]
        assert 1 == len(set(first))
        await asyncio.gather(*(pool.map(call, jobs) for _ in range(20)))
        assert len(processes.process_ids) <= 2


async def test_exception_of_a_call_is_raised_and_the_process_continues() -> None:
    processes = ComputeProcesses()
    async with pool_of(processes) as pool:
        with pytest.raises(compute_calls.Refusal, match="no") as refused:
            await pool.map(compute_calls.refuse, [(b"",)])
        assert (3, 4) == refused.value.records
        before = processes.process_ids
        await pool.map(compute_calls.reverse, [(b"",)])
        assert before == processes.process_ids


async def test_a_call_fails_with_its_process_and_the_next_one_gets_another() -> None:
    async with pool_of(ComputeProcesses()) as pool:
        for _ in range(2):
            with pytest.raises(ComputeProcessDied, match="-9"):
                await pool.map(compute_calls.die, [(b"",)])
            assert [b"ba"] == await pool.map(compute_calls.reverse, [(b"ab",)])


async def test_a_process_that_was_killed_while_idle_is_replaced_unnoticed() -> None:
    processes = ComputeProcesses()
    async with pool_of(processes) as pool:
        for _ in range(3):
            assert [b"ba"] == await pool.map(compute_calls.reverse, [(b"ab",)])
            (process_id,) = processes.process_ids
            os.kill(process_id, signal.SIGKILL)


async def test_the_priority_is_below_that_of_the_server_and_of_other_sessions() -> None:
    async with pool_of(ComputeProcesses()) as pool, asyncio.timeout(GUARD_S):
        is_low = False
        while not is_low:  # that of the session follows, when the system allows it
            ((niceness, autogroup),) = await pool.map(compute_calls.priorities, [(b"",)])
            assert min(os.nice(0) + NICENESS, 19) == niceness
            is_low = autogroup.endswith(f" nice {NICENESS}\n") or not HAS_AUTOGROUPS


async def test_memory_has_a_limit() -> None:
    async with pool_of(ComputeProcesses(memory_bytes_max=100 << 20)) as pool:
        assert [10 << 20] == await pool.map(compute_calls.allocate, [(b"", 10 << 20)])
        with pytest.raises(ComputeProcessDied, match="memory"):
            await pool.map(compute_calls.allocate, [(b"", 200 << 20)])
        assert [b"ba"] == await pool.map(compute_calls.reverse, [(b"ab",)])


async def test_an_idle_process_ends_and_leaves_nothing() -> None:
    processes = ComputeProcesses(idle_s=0.01)
    async with pool_of(processes) as pool:
        for _ in range(5):
            (found,) = await pool.map(compute_calls.length_and_process, [(b"", 0)])
            await until(lambda: not processes.process_ids)
            with pytest.raises(ProcessLookupError):
                os.kill(found[-1], 0)


async def test_calls_succeed_however_soon_idle_processes_end() -> None:
    """The end of a process and the next call cross in every order."""
    async with pool_of(ComputeProcesses(idle_s=0)) as pool:
        jobs = [(b"ab",)]
        for _ in range(30):
            assert [b"ba"] == await pool.map(compute_calls.reverse, jobs)


async def test_closing_ends_a_call_that_would_never_return(tmp_path: Path) -> None:
    path = tmp_path / "process"
    processes = ComputeProcesses()
    async with pool_of(processes) as pool:
        running = asyncio.ensure_future(pool.map(compute_calls.never_return, [(b"", str(path))]))
        await until(path.exists)
        process_id = int(path.read_text())
        pool.close()
        with pytest.raises(PoolClosed):
            await running
        with pytest.raises(ProcessLookupError):
            os.kill(process_id, 0)
        with pytest.raises(PoolClosed):
            await pool.map(compute_calls.reverse, [(b"",)])


async def test_a_caller_that_is_cancelled_loses_no_process(tmp_path: Path) -> None:
    processes = ComputeProcesses()
    async with pool_of(processes, threads=1) as pool:
        calls = [
            asyncio.ensure_future(pool.map(compute_calls.numbers, [(b"", 1000)])) for _ in range(5)
        ]
        await asyncio.sleep(0)
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert [b"ba"] == await pool.map(compute_calls.reverse, [(b"ab",)])
        assert 1 == len(processes.process_ids)


PARENT = """
import asyncio, sys
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.compute_process import ComputeProcesses
from tests.runtime import compute_calls

async def run():
    pool = ComputePool(BlockingPool(1), cost_per_tick_max=0, processes=ComputeProcesses())
    (found,) = await pool.map(compute_calls.length_and_process, [(b"", 0)])
    print(found[-1], flush=True)
    await pool.map(compute_calls.never_pause, [(b"", sys.argv[1])])

asyncio.run(run())
"""


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_process_ends_with_its_parent(is_busy: bool, tmp_path: Path) -> None:
    path = tmp_path / "process"
    path = path if is_busy else tmp_path / "no-folder" / "process"
    program = PARENT if is_busy else PARENT.replace("    await pool.map", "    sys.stdin.read()#")
    words = [sys.executable, "-c", program, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        process_id = int(parent.stdout.readline())
        while is_busy and not path.exists():
            assert parent.poll() is None
        parent.kill()
    await_end(process_id)


@pytest.mark.parametrize("call", [check_records, first_since, records_by_key_hash])
async def test_real_calls_load_little(call: Callable[..., object]) -> None:
    """A process is small and starts in 60 ms, because it has no event loop, no store, no gRPC."""
    async with pool_of(ComputeProcesses()) as pool:
        (loaded,) = await pool.map(compute_calls.loaded_with, [(b"", call.__module__)])
        assert call.__module__ in loaded
        assert not {"asyncio", "rocksdict", "grpc", "kledger.ledger", "logging"} & set(loaded)


@pytest.mark.parametrize("executable", ["/nonexistent", "/bin/false"])
async def test_without_processes_threads_make_the_calls(
    executable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    async with pool_of(ComputeProcesses()) as pool:
        for _ in range(2):
            (found,) = await pool.map(compute_calls.length_and_process, [(b"ab", 7)])
            assert (2, 7, os.getpid()) == found


def test_frozen_programs_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their `sys.executable` is the program, which would start once more."""
    assert ComputeProcesses.if_possible() is not None
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert ComputeProcesses.if_possible() is None
