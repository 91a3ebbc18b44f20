"""Removals from a log: the log start first, then ledgers and rows, none of them halfway."""

import asyncio
import threading

import pytest

from kledger.ledger import StoreConfig
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import TopicStorageFailed
from kledger.topics.keys import PartitionKeys, ids_after
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import batch
from tests.topics.words import (
    SMALL_SEGMENTS,
    CountingEngine,
    TopicStore,
    append,
    open_topics,
    outcome,
)


async def test_rows_that_failed_are_not_written_for_a_removed_ledger() -> None:
    """Rows of a closed ledger wait for the storage; meanwhile that ledger is removed."""
    engine = FaultyEngine(None)
    async with open_topics(engine, store_config=StoreConfig(durability="fsync")) as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        await append(log, batch("x"))
        await log.managed_ledger.roll_over()
        await append(log, batch("its rows go with what is stored next"))
        engine.fail_next("commit", StorageWriteFailed("full"))
        assert TopicStorageFailed is outcome(await append(log, batch("lost")))
        await log.delete_records(-1)
        await append(log, batch("x"))
        await log.managed_ledger.roll_over()
        await append(log, batch("x"))
        await opened.store.flush()
        assert_no_stale_rows(opened, log)


def assert_no_stale_rows(opened: TopicStore, log: PartitionLog) -> None:
    """Every row of the index belongs to a ledger that exists."""
    keys = PartitionKeys(log.topic_id, 0)
    kept = {info.ledger_id for info in log.managed_ledger.ledgers}
    for prefix in (keys.ledger_summaries, keys.intervals):
        for key, _ in opened.store.scan_rows(prefix):
            assert ids_after(key, prefix)[0] in kept


async def test_trimmed_ledgers_leave_no_rows() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        for _ in range(12):
            await append(log, batch("x" * 100))
        await log.delete_records(12)
        await opened.store.flush()
        assert_no_stale_rows(opened, log)


async def test_rows_to_remove_are_never_looked_for_on_the_loop() -> None:
    """They may have to come from a disk."""
    engine = CountingEngine()
    async with open_topics(engine) as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        for _ in range(12):
            await append(log, batch("x" * 100))
        engine.scanned_in.clear()
        await log.delete_records(12)
        assert engine.scanned_in
        assert threading.main_thread() not in engine.scanned_in


@pytest.mark.parametrize("cut_at", range(4))
async def test_rows_that_a_crash_has_left_are_removed_at_the_next_start(cut_at: int) -> None:
    """Log start, list of ledgers, intervals, spans: whatever step is cut off, no row stays."""
    engine, synced = FaultyEngine(None), StoreConfig(durability="fsync")
    async with open_topics(engine, store_config=synced, is_closed_cleanly=False) as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        for _ in range(12):
            await append(log, batch("x" * 100))
        await opened.store.flush()
        for _ in range(cut_at):
            engine.delay_next("commit", 0)
        hold = engine.hold_next("commit")
        removing = asyncio.ensure_future(log.delete_records(12))
        await hold.reached()
        engine.drop_unsynced()
        with pytest.raises(TopicStorageFailed):
            await removing
    async with open_topics(engine) as again:
        log = await again.log()
        assert log.log_start_offset in (0, 12)
        await log.delete_records(12)
        await again.store.flush()
        assert_no_stale_rows(again, log)


@pytest.mark.parametrize("cancelled_at", range(4))
async def test_cancelled_removal_leaves_no_rows(cancelled_at: int) -> None:
    """A client that disconnects during DeleteRecords must not leave half of a removal."""
    engine = FaultyEngine(None)
    async with open_topics(engine, store_config=StoreConfig(durability="fsync")) as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        for _ in range(12):
            await append(log, batch("x" * 100))
        await opened.store.flush()
        for _ in range(cancelled_at):
            engine.delay_next("commit", 0)
        hold = engine.hold_next("commit")
        removing = asyncio.ensure_future(log.delete_records(12))
        await hold.reached()
        removing.cancel()
        hold.release()
        with pytest.raises(asyncio.CancelledError):
            await removing
        await log.enforce_retention()  # waits for the removal
        await opened.store.flush()
        assert 12 == log.log_start_offset
        assert_no_stale_rows(opened, log)


async def test_failed_log_start_changes_nothing() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log()
        await append(log, batch("a", "b"))
        engine.fail_next("commit", StorageWriteFailed("full"))
        with pytest.raises(TopicStorageFailed):
            await log.delete_records(1)
        assert 0 == log.log_start_offset
        assert 1 == await log.delete_records(1)


async def test_what_came_during_the_roll_is_not_trimmed() -> None:
    """A record that arrives while its old ledger is being closed for retention must stay."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log(configs={"retention.ms": "10"})
        await append(log, batch("old"))
        opened.clock.advance(20)
        hold = engine.hold_next("commit")
        trimming = asyncio.ensure_future(log.enforce_retention())
        fresh = asyncio.ensure_future(append(log, batch("new", timestamp=opened.clock.now_ms())))
        await hold.reached()
        hold.release()
        await asyncio.gather(trimming, fresh)
        assert 2 == log.high_watermark
        assert log.log_start_offset <= 1
        assert (await log.read(1, 1000)).error is None


@pytest.mark.parametrize("retention_bytes", ["-1", "0", "1", "9223372036854775807"])
@pytest.mark.parametrize("retention_ms", ["-1", "0", "1", "9223372036854775807"])
async def test_every_mix_of_retentions_is_taken(retention_bytes: str, retention_ms: str) -> None:
    """Kafka allows all of them; the ledger below would refuse bytes 0 with a time."""
    configs = {"retention.bytes": retention_bytes, "retention.ms": retention_ms}
    async with open_topics() as opened:
        created = await opened.log("created", configs)
        altered = await opened.log("altered")
        await opened.registry.alter_configs("altered", configs)
        for log in (created, altered):
            await append(log, batch("a"))
        opened.clock.advance(10)
        await opened.registry.enforce_retention()
        is_kept = retention_bytes != "0" and retention_ms not in {"0", "1"}
        for log in (created, altered):
            assert (0 if is_kept else 1) == log.log_start_offset
            await append(log, batch("b"))
            assert 2 == log.high_watermark
