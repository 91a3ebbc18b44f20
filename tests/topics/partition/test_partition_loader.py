"""Opening: what a start finds out from log and rows."""

import pytest

from kledger.batches.reader import iterate_records
from kledger.ledger import LedgerStore, ManagedLedgerConfig
from kledger.ledger.engine.memory import MemoryEngine
from kledger.topics.errors import OutOfOrderSequence, PartitionTerminated, TopicStorageFailed
from kledger.topics.keys import PartitionKeys
from kledger.topics.partition import partition_checkpointer, records
from kledger.topics.partition_name import managed_ledger_name
from tests.batches.words import batch
from tests.topics.words import SMALL_SEGMENTS, all_values, append, open_topics, outcome


@pytest.mark.parametrize("is_closed_cleanly", [True, False])
async def test_offsets_continue_where_the_log_ends(is_closed_cleanly: bool) -> None:
    async with open_topics(is_closed_cleanly=is_closed_cleanly) as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        for index in range(30):
            await append(log, batch(str(index), "x" * 20))
        before = await all_values(log)
    for _ in range(3):
        async with open_topics(opened.engine, is_closed_cleanly=is_closed_cleanly) as again:
            log = await again.log()
            assert (0, 60) == (log.log_start_offset, log.high_watermark)
            assert before == await all_values(log)


async def test_producers_come_from_checkpoint_and_the_log_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_checkpointer, "CHECKPOINT_ENTRIES_MIN", 7)
    async with open_topics(is_closed_cleanly=False) as opened:
        log = await opened.log()
        log._checkpointer._checkpoint_entries = 7
        for sequence in range(25):
            await append(log, batch("v", producer=9, sequence=sequence))
        producers = log.producers()
        keys = PartitionKeys(log.topic_id, 0)
        row = opened.store.get_row(keys.checkpoint)
        assert row is not None
        assert 21 == records.decode_checkpoint(row).next_offset
    async with open_topics(opened.engine) as again:
        log = await again.log()
        assert producers == log.producers()
        assert [24, 20, OutOfOrderSequence, 25] == [
            outcome(await append(log, batch("v", producer=9, sequence=s))) for s in (24, 20, 19, 25)
        ]


async def test_checkpoint_beyond_the_log_is_not_believed() -> None:
    async with open_topics(is_closed_cleanly=False) as opened:
        log = await opened.log()
        await append(log, batch("a", "b"))
        keys = PartitionKeys(log.topic_id, 0)
        row = records.encode_checkpoint(records.Checkpoint(99, 1 << 40, 0, {}))
        await opened.store.put_rows([(keys.checkpoint, row)])
        await opened.store.put_rows([(keys.log_start, records.encode_log_start(1))])
    async with open_topics(opened.engine) as again:
        log = await again.log()
        assert (1, 2) == (log.log_start_offset, log.high_watermark)


async def test_a_row_that_cannot_be_read_is_named() -> None:
    async with open_topics() as opened:
        log = await opened.log("t")
        keys = PartitionKeys(log.topic_id, 0)
    for key, kind, versions in (
        (keys.checkpoint, "checkpoint", "2 or 3, got 1"),
        (keys.log_start, "log start", "1, got 3"),
    ):
        async with open_topics(opened.engine) as again:
            before = again.store.get_row(key)
            await again.store.put_rows([(key, bytes([int(versions[-1])]))])
            error = f"^{kind} row 't-0': expected version {versions}$"
            with pytest.raises(TopicStorageFailed, match=error):
                await again.log("t")
            await again.store.put_rows([(key, before)])


async def test_lost_index_rows_are_worked_out_again() -> None:
    async with open_topics(is_closed_cleanly=False) as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        for index in range(30):
            await append(log, batch(str(index), "x" * 20))
        keys = PartitionKeys(log.topic_id, 0)
        await opened.store.flush()
        rows = opened.store.scan_rows(keys.prefix)
        assert len(rows) > 10
        await opened.store.put_rows([(key, None) for key, _ in rows])
    async with open_topics(opened.engine) as again:
        log = await again.log()
        assert [b"7", b"x" * 20] == [
            r.value for c in (await log.read(15, 1)).chunks for r in iterate_records(c)
        ]
        await again.store.flush()
        assert rows == again.store.scan_rows(keys.prefix)


async def test_entry_that_is_no_batch_and_unreadable_rows_are_said() -> None:
    engine = MemoryEngine()
    async with open_topics(engine) as opened:
        topic = await opened.registry.create("a", partitions=2)
        for index, rows in enumerate(([], [(PartitionKeys(topic.id, 1).log_start, b"\x09")])):
            name = managed_ledger_name("a", topic.id, index)
            ledger = await opened.store.open_managed_ledger(name, config=ManagedLedgerConfig())
            if rows:
                await opened.store.put_rows(rows)
            else:
                await ledger.add_entry(b"hello")
            with pytest.raises(TopicStorageFailed):
                await topic.open_partition(index)
    assert isinstance(opened.store, LedgerStore)


async def test_a_partition_that_was_terminated_empty_opens_again() -> None:
    """It has no ledger at all: the open one went with the termination."""
    async with open_topics() as opened:
        log = await opened.log()
        await log.terminate()
        await log.enforce_retention()
        assert () == log.managed_ledger.ledgers
    async with open_topics(opened.engine) as again:
        log = await again.log()
        assert (0, 0) == (log.log_start_offset, log.high_watermark)
        assert isinstance((await append(log, batch("a"))).error, PartitionTerminated)


async def test_cursors_are_shown_under_the_topic_of_their_partition() -> None:
    async with open_topics() as opened:
        topic = await opened.registry.create("orders", partitions=2, configs={})
        log = await topic.open_partition(1)
        await log.managed_ledger.open_cursor("c")
        names = opened.store.metrics.snapshot()
        shown = [name for name in names if name.startswith("pulsar_cursor_")]
        assert shown
        label = 'namespace="public/default",topic="orders-partition-1",subscription="c"'
        assert all(label in name for name in shown)
