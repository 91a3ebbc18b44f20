"""Ten million keys in 64 MiB; values of 200 MB, compared by a strategy, in 32 MiB."""

import pytest

from kledger.runtime.compute_process import ComputeProcesses
from kledger.topics.compaction.compaction_calls import (
    begin_run,
    compare_batches,
    count_records,
    index_batches,
    rebuild_batches,
)
from kledger.topics.compaction.compaction_rules import BatchOutcome
from tests.runtime.test_compute_process import pool_of
from tests.topics.compaction.many_keys import batches_of, peak_memory_bytes
from tests.topics.compaction.words import rules

KEY_COUNT = 10_000_000
AGAIN = 10
"""Every tenth key comes once more."""
STEP = 100_000
MEMORY_BYTES_MAX = 64 << 20
BARE_BYTES = 40 << 20
"""What the process has besides: the interpreter, its modules, and the batches of a call twice."""
UNUSED_BYTES = 50 << 20
"""What numpy's libraries reserve, and never touch."""


@pytest.mark.slow
async def test_ten_million_keys_need_no_more_memory_than_allowed() -> None:
    """The limit of the process is hard: a call that needs more fails."""
    starts = range(0, KEY_COUNT, STEP)
    again = range(0, KEY_COUNT, AGAIN)
    chunks = [range(start, start + STEP) for start in starts]
    chunks += [again[start : start + STEP] for start in range(0, len(again), STEP)]
    async with (
        pool_of(ComputeProcesses()) as pool,
        pool.session(
            begin_run,
            rules(memory_bytes_max=MEMORY_BYTES_MAX),
            memory_bytes_max=MEMORY_BYTES_MAX + BARE_BYTES + UNUSED_BYTES,
        ) as session,
    ):
        for index, chunk in enumerate(chunks):
            await session.call(index_batches, list(batches_of(chunk, index * STEP)))
        outcomes: set[BatchOutcome] = set()
        for index, chunk in enumerate(chunks):
            batches = list(batches_of(chunk, index * STEP))
            is_end = index == len(chunks) - 1
            rebuilt = await session.call(rebuild_batches, batches, [0] * len(batches), is_end)
            outcomes.update(each.outcome for each in rebuilt)
        counts = await session.call(count_records, [])
        assert len(again) == counts.superseded
        assert KEY_COUNT == counts.records_kept
        assert counts.keys_spilled >= KEY_COUNT
        assert {BatchOutcome.UNCHANGED, BatchOutcome.REBUILT} == outcomes
        peak = await session.call(peak_memory_bytes, [])
        assert peak <= MEMORY_BYTES_MAX + BARE_BYTES


@pytest.mark.slow
async def test_values_that_a_strategy_compares_need_no_more_memory_than_allowed() -> None:
    """The limit is as hard; the values are six times as large."""
    value_size, key_count, step, limit = 1_000, 200_000, 5_000, 32 << 20
    chunks = [range(start, start + step) for start in range(0, key_count, step)] * 2
    async with (
        pool_of(ComputeProcesses()) as pool,
        pool.session(
            begin_run,
            rules(memory_bytes_max=limit, strategy="largest"),
            memory_bytes_max=limit + BARE_BYTES + UNUSED_BYTES,
        ) as session,
    ):
        for index, chunk in enumerate(chunks):
            # Those that come again are smaller, so that the strategy skips them.
            value = b"%d" % (index < len(chunks) // 2) * value_size
            batches = list(batches_of(chunk, index * step, value))
            await session.call(compare_batches, batches, [(3, index, 0)] * len(batches))
        await session.call(rebuild_batches, [], [], False)
        counts = await session.call(count_records, [])
        assert (key_count, 0) == (counts.skipped, counts.superseded)
        assert counts.keys_spilled > key_count
