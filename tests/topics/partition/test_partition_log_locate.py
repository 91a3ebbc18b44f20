"""Offsets into positions and back: over ledgers, inside batches, around removed ones."""

import asyncio

import pytest

from kledger.ledger import EARLIEST, LATEST
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import TopicStorageFailed, UnknownPartition
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.partition.results import LogLocation
from tests.batches.words import batch
from tests.topics.words import SMALL_SEGMENTS, append, open_topics

COUNTS = [1, 3, 2, 5, 1, 4, 2, 6, 1, 3] * 2


async def fill(log: PartitionLog) -> list[LogLocation]:
    """Append batches of these sizes; return where each record went."""
    expected = []
    for count in COUNTS:
        position = (await append(log, batch(*"x" * count))).position
        assert position is not None
        expected += [LogLocation(position, index, count) for index in range(count)]
    return expected


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_every_offset_is_where_its_append_said(is_restarted: bool) -> None:
    async with open_topics(is_closed_cleanly=False) as opened:
        expected = await fill(await opened.log(configs=SMALL_SEGMENTS))
        assert 3 < len({each.position.ledger_id for each in expected})
        if not is_restarted:
            await check_all(await opened.log(), expected)
            return
    async with open_topics(opened.engine) as again:
        await check_all(await again.log(), expected)


async def check_all(log: PartitionLog, expected: list[LogLocation]) -> None:
    assert expected == [await log.locate(offset) for offset in range(len(expected))]
    for offset, (position, index, _) in enumerate(expected):
        assert offset - index == await log.offset_at(position)


async def test_end_and_beyond_is_the_position_to_be_written_next() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        for _ in range(9):  # at times a new ledger has been begun, at times not
            end = await log.locate(log.high_watermark)
            assert (0, 0) == end[1:]
            assert end == await log.locate(log.high_watermark + 99)
            assert log.high_watermark == await log.offset_at(end.position)
            assert end.position == (await append(log, batch("a", "b"))).position


async def test_a_removed_offset_stands_for_the_next_one() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        expected = await fill(log)
        await log.delete_records(13)
        assert expected[13] == await log.locate(0) == await log.locate(12)
        assert expected[14] == await log.locate(14)
        assert 13 == await log.offset_at(EARLIEST) == await log.offset_at(expected[0].position)
        assert sum(COUNTS) == await log.offset_at(LATEST)


async def test_offset_in_an_empty_partition() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        position = (await log.locate(0)).position
        assert 0 == await log.offset_at(position)
        assert position == (await append(log, batch("a"))).position


async def test_log_that_cannot_be_read_is_a_storage_error() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        await fill(await opened.log(configs=SMALL_SEGMENTS))
    async with open_topics(engine) as again:
        log = await again.log()
        engine.fail_next("read")
        with pytest.raises(TopicStorageFailed):
            await log.locate(0)
        engine.fail_next("read")
        with pytest.raises(TopicStorageFailed):
            await log.offset_at(EARLIEST)


async def test_record_deleted_while_it_is_looked_for_is_looked_for_again() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        await fill(await opened.log(configs=SMALL_SEGMENTS))
    async with open_topics(engine) as again:
        log = await again.log()
        hold = engine.hold_next("read")
        found = asyncio.ensure_future(log.locate(0))
        await hold.reached()
        await log.delete_records(9)
        hold.release()
        assert await log.locate(9) == await found


async def test_closed_partition_says_so() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await log.close()
        for call in (log.locate(0), log.offset_at(EARLIEST)):
            with pytest.raises(UnknownPartition):
                await call
