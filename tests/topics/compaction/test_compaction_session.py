"""A run in a compute process, as the compactor has it make one."""

import os
import signal

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.compression import Codec
from kledger.batches.errors import CorruptBatch
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.compute_process import ComputeProcessDied, ComputeProcesses
from kledger.topics.compaction.compaction_calls import (
    PROCESS_BYTES_MIN,
    begin_run,
    count_records,
    index_batches,
    rebuild_batches,
)
from tests.runtime import compute_calls
from tests.runtime.test_compute_process import pool_of
from tests.topics.compaction.words import compact, log_batch, rules

RUN_MODULE = "kledger.topics.compaction.compaction_run"
LOG = [
    log_batch(number * 10, *[(f"k{number * index % 97}", f"v{number}") for index in range(10)])
    for number in range(200)
]


async def compacted_in(pool: ComputePool) -> tuple[object, object]:
    """Return what becomes of LOG, and the counts."""
    memory = PROCESS_BYTES_MIN + (64 << 20)
    async with pool.session(begin_run, rules(), memory_bytes_max=memory) as session:
        await session.call(index_batches, LOG[:150])
        await session.call(index_batches, LOG[150:])
        rebuilt = await session.call(rebuild_batches, LOG[:70], [0] * 70, False)
        rebuilt += await session.call(rebuild_batches, LOG[70:], [0] * 130, True)
        return rebuilt, await session.call(count_records, [])


@pytest.mark.parametrize("has_processes", [False, True])
async def test_a_run_in_a_session_returns_what_it_returns_here(*, has_processes: bool) -> None:
    processes = ComputeProcesses() if has_processes else None
    pool = ComputePool(BlockingPool(1), cost_per_tick_max=0, processes=processes)
    expected = compact(LOG)
    assert {"U", "R", "D"} == set(expected.outcomes)
    assert (expected.rebuilt, expected.counts) == await compacted_in(pool)
    pool.close()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
async def test_batches_that_grow_much_fit_into_the_memory_together(codec: Codec) -> None:
    """Each was kept in the memory of 128 MiB into which it had been decompressed."""
    value = bytes(100_000)
    batches = [
        build_batch([NewRecord(value, b"%d" % number)], codec=codec, base_offset=number)
        for number in range(8)
    ]
    memory = PROCESS_BYTES_MIN + (64 << 20)
    async with (
        pool_of(ComputeProcesses()) as pool,
        pool.session(begin_run, rules(), memory_bytes_max=memory) as session,
    ):
        await session.call(index_batches, batches)
        kept = await session.call(rebuild_batches, batches, [0] * len(batches), True)
    assert len(batches) == len(kept)


async def test_what_cannot_be_read_is_the_same_error_in_the_session() -> None:
    damaged = bytearray(LOG[1])
    damaged[-1] ^= 1
    async with pool_of(ComputeProcesses()) as pool, pool.session(begin_run, rules()) as session:
        with pytest.raises(CorruptBatch, match="batch at offset 10: checksum"):
            await session.call(index_batches, [LOG[0], damaged])


async def test_a_process_that_was_killed_fails_the_run() -> None:
    processes = ComputeProcesses()
    async with pool_of(processes) as pool, pool.session(begin_run, rules()) as session:
        await session.call(index_batches, LOG)
        os.kill(processes.process_ids[0], signal.SIGKILL)
        with pytest.raises(ComputeProcessDied):
            await session.call(rebuild_batches, LOG, [0] * len(LOG), True)


async def test_the_process_loads_little() -> None:
    async with pool_of(ComputeProcesses()) as pool:
        (loaded,) = await pool.map(compute_calls.loaded_with, [(b"", RUN_MODULE)])
        assert RUN_MODULE in loaded
        assert not {"asyncio", "rocksdict", "grpc", "kledger.ledger", "logging"} & set(loaded)
