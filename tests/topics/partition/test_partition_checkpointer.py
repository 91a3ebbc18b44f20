"""The rows beside a log: never ahead of it, never in the way."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from kledger.batches.builder import BatchProducer, NewRecord, build_batch
from kledger.ledger import OffloadPolicies
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import FaultyEngine
from kledger.topics.config.topic_config import TopicDefaults, effective_config
from kledger.topics.keys import PartitionKeys, ids_after
from kledger.topics.partition import partition_checkpointer, records
from kledger.topics.partition.partition_checkpointer import (
    CHECKPOINT_ENTRIES_PER_PRODUCER,
    ENCODED_INLINE_MAX,
    ENTRIES_PER_LEDGER,
    ledger_config,
)
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import NOW_MS, batch
from tests.runtime.held_pool import HeldPool
from tests.topics.words import SMALL_SEGMENTS, append, open_topics

MANY_PRODUCERS = CHECKPOINT_ENTRIES_PER_PRODUCER * (ENCODED_INLINE_MAX + 1)


def test_segment_settings_are_those_of_the_managed_ledger() -> None:
    config = ledger_config(
        effective_config({"segment.bytes": "1048576", "segment.ms": "7"}, TopicDefaults()),
        OffloadPolicies(deletion_lag_ms=5),
    )
    assert 5 == config.offload.deletion_lag_ms
    assert (1 << 20, 7, ENTRIES_PER_LEDGER, -1, -1) == (
        config.max_bytes_per_ledger, config.max_rollover_ms, config.max_entries_per_ledger,
        config.retention_ms, config.retention_bytes,
    )  # fmt: skip


async def test_rows_of_a_failed_group_are_written_later() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        keys = PartitionKeys(log.topic_id, 0)
        for index in range(12):
            await append(log, batch("x" * 50))
            if index == 6:
                await opened.store.flush()
                engine.fail_next("commit", StorageWriteFailed("full"))
                await append(log, batch("lost"))
        await opened.store.flush()
        covered: dict[int, int] = {}
        for key, row in opened.store.scan_rows(keys.intervals):
            ledger_id, first = ids_after(key, keys.intervals)
            interval = records.decode_interval(first, row)
            assert covered.get(ledger_id, 0) == interval.first_entry
            covered[ledger_id] = interval.end_entry


async def used_by(log: PartitionLog, producers: range) -> None:
    """Let each of many producers append one batch."""
    for producer_id in producers:
        producer = BatchProducer(producer_id, 0, 0)
        await append(log, build_batch([NewRecord(b"v", b"k", NOW_MS)], producer=producer))


async def test_a_checkpoint_of_many_producers_is_not_encoded_on_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 10,000 it takes 50 ms, after every so many appends, and once for every DeleteRecords."""
    pool = HeldPool()
    monkeypatch.setattr(partition_checkpointer, "CHECKPOINT_ENTRIES_MIN", 50)
    async with open_topics(threads=StoreThreads(compute_pool=lambda: pool)) as opened:
        log = await opened.log()
        keys = PartitionKeys(log.topic_id, 0)
        await used_by(log, range(MANY_PRODUCERS))
        await ticks_until(lambda: pool.waiting_count == 1)
        before = opened.store.get_row(keys.checkpoint)
        await used_by(log, range(MANY_PRODUCERS, MANY_PRODUCERS + 1))
        pool.release()
        deleted = await log.delete_records(1)
        assert 1 == deleted
        await ticks_until(lambda: len(pool.threads) == 2)
        assert threading.main_thread() not in pool.threads
        row = opened.store.get_row(keys.checkpoint)
        assert row is not None
        assert row != before
        assert log.producers() == records.decode_checkpoint(row).producers


async def test_an_older_checkpoint_that_is_encoded_last_does_not_replace_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = HeldPool()
    monkeypatch.setattr(partition_checkpointer, "CHECKPOINT_ENTRIES_MIN", 50)
    async with open_topics(threads=StoreThreads(compute_pool=lambda: pool)) as opened:
        log = await opened.log()
        await used_by(log, range(MANY_PRODUCERS))
        await ticks_until(lambda: pool.waiting_count == 1)
        await used_by(log, range(MANY_PRODUCERS, MANY_PRODUCERS + 1))
        closing = asyncio.ensure_future(log.close())
        await ticks_until(lambda: pool.waiting_count == 2)
        pool.release()
        await closing
        await opened.store.flush()
        row = opened.store.get_row(PartitionKeys(log.topic_id, 0).checkpoint)
        assert row is not None
        assert MANY_PRODUCERS + 1 == records.decode_checkpoint(row).next_offset
        assert log.producers() == records.decode_checkpoint(row).producers


async def ticks_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (ticks, no time)
        await asyncio.sleep(0)
