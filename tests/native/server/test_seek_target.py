"""Where targets lead, in a log of three batches of three, two and four records."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kledger.ledger import LATEST, Position
from kledger.native.broker import RecordPosition, SeekTarget
from kledger.native.errors import InvalidArgument
from kledger.native.server.seek_target import check_target, find_start
from kledger.subscriptions.model import StartPosition
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import NOW_MS, batch
from tests.topics.words import House, append, house

SIZES = (3, 2, 4)


@asynccontextmanager
async def filled() -> AsyncIterator[tuple[House, PartitionLog, list[Position]]]:
    """Each batch is a second younger than the one before, each record a millisecond."""
    async with house() as opened:
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
async def test_a_record_is_found_or_the_one_behind_it(
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
async def test_a_time_leads_to_the_first_record_that_is_not_older(
    time_ms: int, expected: tuple[int, int] | None
) -> None:
    async with filled() as (_, log, positions):
        found = await find_start(log, time_ms)
        if expected is None:
            assert StartPosition(positions[-1].successor) == found
        else:
            number, batch_index = expected
            assert StartPosition(positions[number], batch_index, SIZES[number]) == found


async def test_the_ends_of_a_log_that_has_begun_later() -> None:
    """What lies before the log start is stored still, and exists for nobody."""
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


async def test_a_record_that_is_gone_leads_to_the_next_that_exists() -> None:
    async with house() as opened:
        log = await opened.log(configs={"internal.segment.bytes": "60"})
        positions = [(await append(log, batch(*values))).position for values in ("ab", "cd", "ef")]
        assert len({each.ledger_id for each in positions if each is not None}) == 3
        await log.delete_records(4)
        assert positions[0] is not None
        gone = RecordPosition(positions[0], 1)
        for is_inclusive in (True, False):
            found = await find_start(log, gone, is_inclusive=is_inclusive)
            assert StartPosition(positions[2], 0, 2) == found  # type: ignore[arg-type]


async def test_an_empty_log_begins_where_its_first_record_will_be() -> None:
    async with house() as opened:
        log = await opened.log()
        found = await find_start(log, "earliest")
        result = await append(log, batch("first"))
        assert StartPosition(result.position) == found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "target",
    [
        "newest",
        -1,
        1 << 63,
        True,
        None,
        1.5,
        RecordPosition(Position(-2, 0)),
        RecordPosition(Position(0, 1 << 63)),
        RecordPosition(Position(0, 0), -2),
        RecordPosition((0, 0)),  # type: ignore[arg-type]
        Position(0, 0),
    ],
)
def test_what_is_no_target_is_refused(target: SeekTarget) -> None:
    with pytest.raises(InvalidArgument, match="target: expected a message, a time in ms"):
        check_target(target)


@pytest.mark.parametrize("target", ["earliest", "latest", 0, RecordPosition(Position(-1, -1), 5)])
def test_targets_are_taken(target: SeekTarget) -> None:
    check_target(target)
