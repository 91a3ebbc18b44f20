"""Partitions under several leaders, one after the other over the same store."""

import pytest

from kledger.batches.header import read_header
from kledger.topics.errors import TopicStorageFailed
from kledger.topics.keys import PartitionKeys
from kledger.topics.leader_epoch import KEY, raise_leader_epoch
from kledger.topics.partition import records
from kledger.topics.partition.leader_epoch_state import EpochStart
from kledger.topics.partition.partition_compaction import CompactionLimits
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import batch
from tests.topics.words import SMALL_SEGMENTS, TopicStore, append, open_topics

EPOCHS = (0, 3, 4)


async def stored_epochs(log: PartitionLog) -> list[tuple[int, int]]:
    """Offset and epoch of each batch."""
    found, offset = [], log.log_start_offset
    while offset < log.high_watermark:
        for chunk in (await log.read(offset, 1)).chunks:
            header = read_header(chunk)
            found.append((header.base_offset, header.leader_epoch))
            offset = header.last_offset + 1
    return found


def ends(log: PartitionLog, *epochs: int) -> list[tuple[int, int] | None]:
    return [
        log.epochs.end_of(
            each, log_start_offset=log.log_start_offset, end_offset=log.high_watermark
        )
        for each in epochs
    ]


async def led_in_turn(*, is_closed_cleanly: bool) -> TopicStore:
    """Append two batches of one record under each epoch."""
    engine = None
    for epoch in EPOCHS:
        async with open_topics(
            engine, leader_epoch=epoch, is_closed_cleanly=is_closed_cleanly
        ) as opened:
            log = await opened.log(configs=SMALL_SEGMENTS)
            assert log.leader_epoch == epoch
            for _ in range(2):
                await append(log, batch("v"))
        engine = opened.engine
    return opened


@pytest.mark.parametrize("is_closed_cleanly", [True, False])
async def test_batches_and_history_have_the_epoch_of_their_leader(is_closed_cleanly: bool) -> None:
    """Also when each leader has crashed: batches tell what no row does."""
    before = await led_in_turn(is_closed_cleanly=is_closed_cleanly)
    async with open_topics(before.engine, leader_epoch=6) as opened:
        log = await opened.log()
        assert await stored_epochs(log) == [(0, 0), (1, 0), (2, 3), (3, 3), (4, 4), (5, 4)]
        assert [log.epochs.epoch_of(each) for each in range(7)] == [0, 0, 3, 3, 4, 4, 6]
        assert ends(log, 0, 2, 3, 4, 5, 6, 7) == [
            (0, 2), (0, 2), (3, 4), (4, 6), (4, 6), (6, 6), None,
        ]  # fmt: skip


async def test_leader_that_crashes_before_its_first_append_leaves_nothing() -> None:
    before = await led_in_turn(is_closed_cleanly=False)
    async with open_topics(before.engine, leader_epoch=8, is_closed_cleanly=False) as opened:
        assert (await opened.log()).leader_epoch == 8
    async with open_topics(before.engine, leader_epoch=9) as opened:
        log = await opened.log()
        assert ends(log, 4, 8, 9) == [(4, 6), (4, 6), (9, 6)]
        await append(log, batch("v"))
        assert (await stored_epochs(log))[-1] == (6, 9)


async def test_store_keeps_its_epoch_when_it_is_opened_without_one() -> None:
    before = await led_in_turn(is_closed_cleanly=True)
    async with open_topics(before.engine) as opened:
        assert opened.registry.leader_epoch == 4
        log = await opened.log()
        assert log.leader_epoch == 4
        assert ends(log, 4) == [(4, 6)]
        topic = opened.registry.get("orders")
        assert topic is not None
        assert topic.leader_epoch(0) == 4


async def test_server_that_is_alone_stores_nothing_about_epochs() -> None:
    async with open_topics(is_closed_cleanly=True) as opened:
        log = await opened.log()
        await append(log, batch("v"))
        keys = PartitionKeys(log.topic_id, 0)
        assert opened.store.get_row(KEY) is None
    async with open_topics(opened.engine) as again:
        row = again.store.get_row(keys.checkpoint)
        assert row is not None
        assert row[0] == records.PLAIN_CHECKPOINT_VERSION


async def test_log_that_is_newer_than_its_leader_is_not_opened() -> None:
    """A folder without the row of its epoch: clients would know an epoch that the log fences."""
    before = await led_in_turn(is_closed_cleanly=True)
    async with open_topics(before.engine) as opened:
        await opened.store.put_rows([(KEY, None)])
        await opened.registry.close()
    async with open_topics(before.engine, leader_epoch=2) as opened:
        with pytest.raises(TopicStorageFailed, match="leader epoch 2, expected at least 4"):
            await opened.log()


async def test_partition_made_under_an_epoch_begins_with_it() -> None:
    async with open_topics(leader_epoch=5, is_closed_cleanly=False) as opened:
        topic = await opened.registry.create("orders", partitions=1)
        log = topic.create_partition(0)
        assert log is not None
        await append(log, batch("v"))
    async with open_topics(opened.engine, leader_epoch=7) as opened:
        log = await opened.log()
        assert ends(log, 0, 5, 7) == [(0, 0), (5, 1), (7, 1)]


async def test_trimmed_epochs_leave_the_checkpoint() -> None:
    before = await led_in_turn(is_closed_cleanly=True)
    async with open_topics(before.engine, leader_epoch=4) as opened:
        log = await opened.log()
        await log.delete_records(3)
        await log.close()
        row = opened.store.get_row(PartitionKeys(log.topic_id, 0).checkpoint)
        assert row is not None
        assert records.decode_checkpoint(row).epochs == (EpochStart(3, 2), EpochStart(4, 4))
    async with open_topics(before.engine, leader_epoch=4) as opened:
        assert ends(await opened.log(), 0, 3, 4) == [(0, 3), (3, 4), (4, 6)]


async def test_epochs_survive_a_compaction() -> None:
    """Of the last batch of epoch 4 one record stays, rebuilt, and nothing of the others."""
    before = await led_in_turn(is_closed_cleanly=True)
    async with open_topics(before.engine, leader_epoch=4) as opened:
        await append(await opened.log(), batch("v", "w"))
    async with open_topics(before.engine, leader_epoch=6) as opened:
        await opened.registry.alter_configs("orders", {"cleanup.policy": "compact"})
        log = await opened.log()
        await append(log, batch("v"))
        await log.managed_ledger.roll_over()
        assert await log.compact(CompactionLimits()) is not None
        assert await stored_epochs(log) == [(6, 4), (8, 6)]
        await opened.registry.close()
    async with open_topics(before.engine, leader_epoch=7) as opened:
        log = await opened.log()
        assert await stored_epochs(log) == [(6, 4), (8, 6)]
        assert ends(log, 3, 4, 6, 7) == [(3, 4), (4, 8), (6, 9), (7, 9)]


async def test_epochs_of_a_store_only_rise() -> None:
    async with open_topics() as opened:
        raised = [await raise_leader_epoch(opened.store, each) for each in (0, 2, 1, 0, 3)]
        assert raised == [0, 2, 2, 2, 3]
