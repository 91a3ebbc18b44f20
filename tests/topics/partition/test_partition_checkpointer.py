"""The rows beside a log: never ahead of it, never in the way."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from kledger.batches.builder import BatchProducer, NewRecord, build_batch
from kledger.ledger import StoreConfig
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import FaultyEngine
from kledger.topics.config.topic_config import TopicDefaults, effective_config
from kledger.topics.errors import TopicStorageFailed
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
from tests.topics.words import SMALL_SEGMENTS, CountingEngine, House, append, house, outcome

MANY_PRODUCERS = CHECKPOINT_ENTRIES_PER_PRODUCER * (ENCODED_INLINE_MAX + 1)


def test_segment_settings_are_those_of_the_managed_ledger() -> None:
    config = ledger_config(
        effective_config({"segment.bytes": "1048576", "segment.ms": "7"}, TopicDefaults())
    )
    assert (1 << 20, 7, ENTRIES_PER_LEDGER, -1, -1) == (
        config.max_bytes_per_ledger, config.max_rollover_ms, config.max_entries_per_ledger,
        config.retention_ms, config.retention_bytes,
    )  # fmt: skip


@pytest.mark.parametrize("retention_bytes", ["-1", "0", "1", "9223372036854775807"])
@pytest.mark.parametrize("retention_ms", ["-1", "0", "1", "9223372036854775807"])
async def test_every_mix_of_retentions_is_taken(retention_bytes: str, retention_ms: str) -> None:
    """Kafka allows all of them; the ledger below would refuse bytes 0 with a time."""
    configs = {"retention.bytes": retention_bytes, "retention.ms": retention_ms}
    async with house() as here:
        created = await here.log("created", configs)
        altered = await here.log("altered")
        await here.registry.alter_configs("altered", configs)
        for log in (created, altered):
            await append(log, batch("a"))
        here.clock.advance(10)
        await here.registry.enforce_retention()
        is_kept = retention_bytes != "0" and retention_ms not in {"0", "1"}
        for log in (created, altered):
            assert (0 if is_kept else 1) == log.log_start_offset
            await append(log, batch("b"))
            assert 2 == log.high_watermark


async def test_rows_of_a_failed_group_are_written_later() -> None:
    engine = FaultyEngine(None)
    async with house(engine) as here:
        log = await here.log(configs=SMALL_SEGMENTS)
        keys = PartitionKeys(log.topic_id, 0)
        for index in range(12):
            await append(log, batch("x" * 50))
            if index == 6:
                await here.store.flush()
                engine.fail_next("commit", StorageWriteFailed("full"))
                await append(log, batch("lost"))
        await here.store.flush()
        covered: dict[int, int] = {}
        for key, row in here.store.scan_rows(keys.intervals):
            ledger_id, first = ids_after(key, keys.intervals)
            interval = records.decode_interval(first, row)
            assert covered.get(ledger_id, 0) == interval.first_entry
            covered[ledger_id] = interval.end_entry


async def test_rows_that_failed_are_not_written_for_a_ledger_that_is_gone() -> None:
    """Rows of a closed ledger wait for the storage; meanwhile that ledger is removed."""
    engine = FaultyEngine(None)
    async with house(engine, store_config=StoreConfig(durability="fsync")) as here:
        log = await here.log(configs=SMALL_SEGMENTS)
        await append(log, batch("x"))
        await log.managed_ledger.roll_over()
        await append(log, batch("its rows go with what is stored next"))
        engine.fail_next("commit", StorageWriteFailed("full"))
        assert TopicStorageFailed is outcome(await append(log, batch("lost")))
        await log.delete_records(-1)
        await append(log, batch("x"))
        await log.managed_ledger.roll_over()
        await append(log, batch("x"))
        await here.store.flush()
        assert_no_stale_rows(here, log)


def assert_no_stale_rows(here: House, log: PartitionLog) -> None:
    """Every row of the index belongs to a ledger that is there."""
    keys = PartitionKeys(log.topic_id, 0)
    kept = {info.ledger_id for info in log.managed_ledger.ledgers}
    for prefix in (keys.ledger_summaries, keys.intervals):
        for key, _ in here.store.scan_rows(prefix):
            assert ids_after(key, prefix)[0] in kept


async def test_trimmed_ledgers_leave_no_rows() -> None:
    async with house() as here:
        log = await here.log(configs=SMALL_SEGMENTS)
        for _ in range(12):
            await append(log, batch("x" * 100))
        await log.delete_records(12)
        await here.store.flush()
        assert_no_stale_rows(here, log)


async def test_rows_to_remove_are_never_looked_for_on_the_loop() -> None:
    """They may have to come from a disk."""
    engine = CountingEngine()
    async with house(engine) as here:
        log = await here.log(configs=SMALL_SEGMENTS)
        for _ in range(12):
            await append(log, batch("x" * 100))
        engine.scanned_in.clear()
        await log.delete_records(12)
        assert engine.scanned_in
        assert threading.main_thread() not in engine.scanned_in


@pytest.mark.parametrize("cut_at", range(4))
async def test_rows_that_a_crash_left_behind_go_at_the_next_start(cut_at: int) -> None:
    """Log start, list of ledgers, intervals, spans: whatever step is cut off, no row stays."""
    engine, synced = FaultyEngine(None), StoreConfig(durability="fsync")
    async with house(engine, store_config=synced, is_closed_well=False) as here:
        log = await here.log(configs=SMALL_SEGMENTS)
        for _ in range(12):
            await append(log, batch("x" * 100))
        await here.store.flush()
        for _ in range(cut_at):
            engine.delay_next("commit", 0)
        hold = engine.hold_next("commit")
        removing = asyncio.ensure_future(log.delete_records(12))
        await hold.reached()
        engine.drop_unsynced()
        with pytest.raises(TopicStorageFailed):
            await removing
    async with house(engine) as again:
        log = await again.log()
        assert log.log_start_offset in (0, 12)
        await log.delete_records(12)
        await again.store.flush()
        assert_no_stale_rows(again, log)


@pytest.mark.parametrize("cancelled_at", range(4))
async def test_cancelled_removal_leaves_no_rows(cancelled_at: int) -> None:
    """A client that goes away during DeleteRecords must not leave half of a removal behind."""
    engine = FaultyEngine(None)
    async with house(engine, store_config=StoreConfig(durability="fsync")) as here:
        log = await here.log(configs=SMALL_SEGMENTS)
        for _ in range(12):
            await append(log, batch("x" * 100))
        await here.store.flush()
        for _ in range(cancelled_at):
            engine.delay_next("commit", 0)
        hold = engine.hold_next("commit")
        removing = asyncio.ensure_future(log.delete_records(12))
        await hold.reached()
        removing.cancel()
        hold.release()
        with pytest.raises(asyncio.CancelledError):
            await removing
        await log.enforce_retention()  # waits for its turn
        await here.store.flush()
        assert 12 == log.log_start_offset
        assert_no_stale_rows(here, log)


async def test_failed_log_start_changes_nothing() -> None:
    engine = FaultyEngine(None)
    async with house(engine) as here:
        log = await here.log()
        await append(log, batch("a", "b"))
        engine.fail_next("commit", StorageWriteFailed("full"))
        with pytest.raises(TopicStorageFailed):
            await log.delete_records(1)
        assert 0 == log.log_start_offset
        assert 1 == await log.delete_records(1)


async def test_what_came_during_the_roll_is_not_trimmed() -> None:
    """A record that arrives while its old ledger is being closed for retention must stay."""
    engine = FaultyEngine(None)
    async with house(engine) as here:
        log = await here.log(configs={"retention.ms": "10"})
        await append(log, batch("old"))
        here.clock.advance(20)
        hold = engine.hold_next("commit")
        trimming = asyncio.ensure_future(log.enforce_retention())
        fresh = asyncio.ensure_future(append(log, batch("new", timestamp=here.clock.now_ms())))
        await hold.reached()
        hold.release()
        await asyncio.gather(trimming, fresh)
        assert 2 == log.high_watermark
        assert log.log_start_offset <= 1
        assert (await log.read(1, 1000)).error is None


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
    async with house(threads=StoreThreads(compute_pool=lambda: pool)) as here:
        log = await here.log()
        keys = PartitionKeys(log.topic_id, 0)
        await used_by(log, range(MANY_PRODUCERS))
        await turns_until(lambda: pool.waiting_count == 1)
        before = here.store.get_row(keys.checkpoint)
        await used_by(log, range(MANY_PRODUCERS, MANY_PRODUCERS + 1))
        pool.release()
        deleted = await log.delete_records(1)
        assert 1 == deleted
        await turns_until(lambda: len(pool.threads) == 2)
        assert threading.main_thread() not in pool.threads
        row = here.store.get_row(keys.checkpoint)
        assert row is not None
        assert row != before
        assert log.producers() == records.decode_checkpoint(row).producers


async def test_an_older_checkpoint_that_is_encoded_last_does_not_replace_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = HeldPool()
    monkeypatch.setattr(partition_checkpointer, "CHECKPOINT_ENTRIES_MIN", 50)
    async with house(threads=StoreThreads(compute_pool=lambda: pool)) as here:
        log = await here.log()
        await used_by(log, range(MANY_PRODUCERS))
        await turns_until(lambda: pool.waiting_count == 1)
        await used_by(log, range(MANY_PRODUCERS, MANY_PRODUCERS + 1))
        closing = asyncio.ensure_future(log.close())
        await turns_until(lambda: pool.waiting_count == 2)
        pool.release()
        await closing
        await here.store.flush()
        row = here.store.get_row(PartitionKeys(log.topic_id, 0).checkpoint)
        assert row is not None
        assert MANY_PRODUCERS + 1 == records.decode_checkpoint(row).next_offset
        assert log.producers() == records.decode_checkpoint(row).producers


async def turns_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (turns of the loop, no time)
        await asyncio.sleep(0)
