"""Records by target, position and offset; most logs here have batches of 3, 2 and 4 records."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kledger.delivery.errors import RecordNotFound
from kledger.delivery.model import NO_RECORD, RecordLocation, RecordPosition
from kledger.delivery.read_committed_filter import ReadCommittedFilter
from kledger.delivery.record_locations import find_start, last_record, offset_of, record_at
from kledger.ledger import LATEST, Position
from kledger.subscriptions.model import StartPosition
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import NOW_MS, batch
from tests.topics.words import TopicStore, append, open_topics

SIZES = (3, 2, 4)


@asynccontextmanager
async def filled() -> AsyncIterator[tuple[TopicStore, PartitionLog, list[Position]]]:
    """Each batch is a second younger than the one before, each record a millisecond."""
    async with open_topics() as opened:
        log = await opened.log()
        positions = []
        for number, size in enumerate(SIZES):
            opened.clock.advance(1_000)
            values = [f"{number}.{index}" for index in range(size)]
            result = await append(log, batch(*values, timestamp=NOW_MS + number * 1_000))
            assert result.position is not None
            positions.append(result.position)
        yield opened, log, positions


@pytest.mark.parametrize(
    ("entry", "index", "is_inclusive", "expected"),
    [
        (0, 0, True, (0, 0)),
        (0, 0, False, (0, 1)),
        (0, 2, True, (0, 2)),
        (0, 2, False, (1, 0)),
        (0, 3, True, (1, 0)),
        (0, 1 << 30, False, (1, 0)),
        (1, -1, True, (1, 0)),
        (1, -1, False, (2, 0)),
        (2, 3, True, (2, 3)),
        (2, 3, False, None),
        (2, -1, False, None),
    ],
)
async def test_record_target_is_found_or_the_one_behind_it(
    entry: int, index: int, is_inclusive: bool, expected: tuple[int, int] | None
) -> None:
    async with filled() as (_, log, positions):
        target = RecordPosition(positions[entry], index)
        found = await find_start(log, target, is_inclusive=is_inclusive)
        if expected is None:
            assert StartPosition(positions[-1].successor) == found
        else:
            number, batch_index = expected
            assert StartPosition(positions[number], batch_index, SIZES[number]) == found


@pytest.mark.parametrize(
    ("time_ms", "expected"),
    [
        (0, (0, 0)),
        (NOW_MS + 2, (0, 2)),
        (NOW_MS + 3, (1, 0)),
        (NOW_MS + 2_003, (2, 3)),
        (NOW_MS + 2_004, None),
    ],
)
async def test_time_leads_to_first_record_not_older(
    time_ms: int, expected: tuple[int, int] | None
) -> None:
    async with filled() as (_, log, positions):
        found = await find_start(log, time_ms)
        if expected is None:
            assert StartPosition(positions[-1].successor) == found
        else:
            number, batch_index = expected
            assert StartPosition(positions[number], batch_index, SIZES[number]) == found


async def test_ends_of_log_with_raised_start() -> None:
    """Records before the log start may still be stored, and are never found."""
    async with filled() as (_, log, positions):
        assert StartPosition(positions[0], 0, 3) == await find_start(log, "earliest")
        assert StartPosition(LATEST) == await find_start(log, "latest")
        await log.delete_records(4)
        start = StartPosition(positions[1], 1, 2)
        for target in (
            "earliest",
            RecordPosition(positions[0], 1),
            RecordPosition(Position(0, 0)),
            0,
        ):
            assert start == await find_start(log, target)
        await log.delete_records(-1)
        assert StartPosition(positions[-1].successor) == await find_start(log, "earliest")


async def test_removed_record_leads_to_next_one() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs={"internal.segment.bytes": "60"})
        positions = [(await append(log, batch(*values))).position for values in ("ab", "cd", "ef")]
        assert len({each.ledger_id for each in positions if each is not None}) == 3
        await log.delete_records(4)
        assert positions[0] is not None
        removed = RecordPosition(positions[0], 1)
        for is_inclusive in (True, False):
            found = await find_start(log, removed, is_inclusive=is_inclusive)
            assert StartPosition(positions[2], 0, 2) == found  # type: ignore[arg-type]


async def test_start_of_empty_log_is_its_first_record() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        found = await find_start(log, "earliest")
        result = await append(log, batch("first"))
        assert StartPosition(result.position) == found  # type: ignore[arg-type]


async def test_every_record_has_one_position_and_one_offset() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        visibility_filter = ReadCommittedFilter(log)
        assert NO_RECORD == await last_record(log, visibility_filter)
        positions = []
        for values in (["a"], ["b", "c", "d"], ["e", "f"]):
            at = (await append(log, batch(*values))).position
            assert at is not None
            positions += [(RecordPosition(at, index), len(values)) for index in range(len(values))]
            await log.managed_ledger.roll_over()
        for offset, (record_position, size) in enumerate(positions):
            found = await record_at(log, offset)
            assert RecordLocation(record_position, size, offset) == found
            assert offset == await offset_of(log, record_position)
        assert found == await last_record(log, visibility_filter)
        whole = RecordPosition(positions[1][0].position)
        assert 1 == await offset_of(log, whole)


@pytest.mark.parametrize("offset", [1, 5, 1 << 62])
async def test_offset_without_record_is_refused(offset: int) -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, batch("a", "b", "c", "d", "e"))
        await log.delete_records(2)
        with pytest.raises(RecordNotFound, match=f"offset {offset} of orders-0: expected 2 to 4"):
            await record_at(log, offset)


@pytest.mark.parametrize(("entry_id", "index"), [(0, 0), (1, 2), (2, 0), (-1, 0), (1 << 62, -1)])
async def test_position_without_record_is_refused(entry_id: int, index: int) -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, batch("a"))
        at = (await append(log, batch("b", "c"))).position
        assert at is not None
        await log.delete_records(1)
        record_position = RecordPosition(Position(at.ledger_id, entry_id), index)
        with pytest.raises(RecordNotFound, match="orders-0 has no record"):
            await offset_of(log, record_position)
