"""Cursors that read compacted: kept entries up to the horizon, then the log, each position once."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import permutations

import pytest

from kledger.ledger import (
    EARLIEST,
    LATEST,
    Cursor,
    LedgerStore,
    ManagedLedger,
    NewEntry,
    Position,
    StoreConfig,
)
from kledger.ledger.testing import FaultyEngine
from tests.ledger.cursors.words import crashed
from tests.ledger.words import OpenStore, add_all, numbers, written


async def compact(ml: ManagedLedger, kept: Iterable[Position], horizon: Position) -> None:
    """Keep these entries, whose text says where they were."""
    writer = await ml.begin_compaction()
    await writer.append([NewEntry(each, (b"kept %d:%d" % each,)) for each in kept])
    await writer.complete(horizon)


async def open_compacted(ml: ManagedLedger, name: str = "c", start: Position = EARLIEST) -> Cursor:
    return await ml.open_cursor_at(name, start, reads_compacted=True)


async def read_all(cursor: Cursor, count: int = 100) -> list[Position]:
    """Read to the end, so many at a time."""
    found = []
    while entries := await cursor.read(count):
        found += [each.position for each in entries]
    return found


@pytest.mark.parametrize("count", [1, 2, 100])
@pytest.mark.parametrize("is_trimmed", [False, True])
async def test_kept_entries_are_read_up_to_the_horizon_and_then_the_log(
    ml: ManagedLedger, positions: list[Position], count: int, is_trimmed: bool
) -> None:
    await compact(ml, [positions[1], positions[4]], positions[5])
    if is_trimmed:
        await ml.trim_before(positions[4])
    cursor = await open_compacted(ml)
    expected = [positions[1], positions[4], *positions[6:]]
    assert expected == await read_all(cursor, count)
    await cursor.rewind()
    first, *_ = await cursor.read(9)
    assert b"kept %d:%d" % positions[1] == first.data
    assert ml.compacted is not None
    assert ml.compacted.ledger_id == cursor.compacted_id
    assert await cursor.read(9)
    assert cursor.compacted_id is None, "a read is from one of the two"


async def test_another_cursor_reads_the_log(
    ml: ManagedLedger, cursor: Cursor, positions: list[Position]
) -> None:
    await compact(ml, [positions[1]], positions[5])
    await open_compacted(ml, "compacted")
    assert positions == await read_all(cursor)


@pytest.mark.parametrize("order", list(permutations(range(4))))
async def test_acknowledging_what_was_read_in_any_order_reaches_the_end(
    ml: ManagedLedger, positions: list[Position], order: Sequence[int]
) -> None:
    await compact(ml, [positions[1], positions[4]], positions[7])
    await ml.trim_before(positions[4])
    cursor = await open_compacted(ml)
    found = await read_all(cursor)
    assert 4 == len(found)
    for index in order:
        assert cursor.mark_delete_position < positions[-1]
        await cursor.delete(found[index])
    assert (positions[-1], 0) == (cursor.mark_delete_position, cursor.backlog)
    assert () == cursor.individually_deleted


async def test_nothing_that_is_unacknowledged_counts_as_acknowledged(
    ml: ManagedLedger, positions: list[Position]
) -> None:
    await compact(ml, [positions[1], positions[4]], positions[6])
    cursor = await open_compacted(ml)
    await read_all(cursor)
    await cursor.delete(positions[4])
    assert cursor.mark_delete_position < positions[1]
    await cursor.rewind()
    assert [positions[1], *positions[7:]] == await read_all(cursor)
    await cursor.delete(positions[1])
    assert positions[4] == cursor.mark_delete_position, "over what compaction has removed"
    await cursor.delete(positions[7:])
    assert positions[-1] == cursor.mark_delete_position


async def test_the_end_is_reached_where_nothing_was_kept(
    ml: ManagedLedger, positions: list[Position]
) -> None:
    await compact(ml, [positions[1]], positions[-1])
    cursor = await open_compacted(ml)
    assert [positions[1]] == await read_all(cursor)
    await cursor.delete(positions[1])
    assert (positions[-1], 0) == (cursor.mark_delete_position, cursor.backlog)


async def test_removed_ledgers_do_not_move_it_while_a_compacted_ledger_stands_for_them(
    ml: ManagedLedger, positions: list[Position]
) -> None:
    cursor = await open_compacted(ml)
    assert positions[:2] == [each.position for each in await cursor.read(2)]
    await cursor.mark_delete(positions[1])
    await compact(ml, positions[2:7:2], positions[7])
    await ml.trim_before(positions[8])
    assert positions[1] == cursor.mark_delete_position
    await cursor.rewind()
    assert [*positions[2:7:2], *positions[8:]] == await read_all(cursor)


async def test_ledgers_that_are_removed_behind_the_horizon_are_missing(
    ml: ManagedLedger, positions: list[Position]
) -> None:
    await compact(ml, [positions[1]], positions[2])
    cursor = await open_compacted(ml)
    await ml.trim_before(positions[8])
    assert [positions[1], *positions[8:]] == await read_all(cursor)
    await cursor.delete([positions[1], *positions[8:]])
    assert (positions[9], 0) == (cursor.mark_delete_position, cursor.backlog)


async def test_it_holds_back_only_what_is_not_compacted(
    ml: ManagedLedger, positions: list[Position]
) -> None:
    await open_compacted(ml)
    await compact(ml, [positions[1]], positions[5])
    assert positions[5] == ml.slowest_position
    await ml.truncate()
    assert positions[4].ledger_id == ml.ledgers[0].ledger_id


async def test_position_and_acknowledgements_survive_without_the_ledgers_of_the_log(
    store: LedgerStore,
    engine: FaultyEngine,
    open_store: OpenStore,
    ml: ManagedLedger,
    positions: list[Position],
) -> None:
    await compact(ml, [positions[0], positions[2], positions[4]], positions[6])
    await ml.trim_before(positions[8])
    cursor = await open_compacted(ml)
    await read_all(cursor)
    await cursor.mark_delete(positions[0])
    await cursor.delete(positions[4])
    ml = await crashed(store, engine, open_store)
    cursor = await ml.open_cursor("c")
    assert cursor.reads_compacted
    assert {} == cursor.properties
    assert positions[0] == cursor.mark_delete_position
    assert [positions[2], *positions[8:]] == await read_all(cursor)


async def test_a_reset_goes_to_positions_that_only_the_compacted_ledger_has(
    ml: ManagedLedger, positions: list[Position]
) -> None:
    await compact(ml, [positions[0], positions[2], positions[4]], positions[6])
    await ml.trim_before(positions[8])
    cursor = await open_compacted(ml, start=LATEST)
    assert [] == await read_all(cursor)
    for start, expected in (
        (positions[2], [positions[2], positions[4], *positions[8:]]),
        (positions[3], [positions[4], *positions[8:]]),
        (EARLIEST, [positions[0], positions[2], positions[4], *positions[8:]]),
    ):
        await cursor.reset(start)
        assert expected == await read_all(cursor)


async def test_a_compaction_that_completes_between_two_reads_loses_nothing(
    ml: ManagedLedger, positions: list[Position]
) -> None:
    await compact(ml, [positions[0], positions[2]], positions[3])
    cursor = await open_compacted(ml)
    assert [positions[0]] == [each.position for each in await cursor.read(1)]
    await compact(ml, [positions[1], positions[5]], positions[6])
    await ml.trim_before(positions[8])
    assert [positions[1], positions[5], *positions[8:]] == await read_all(cursor)
    await cursor.delete([positions[0], positions[1], positions[5], *positions[8:]])
    assert 0 == cursor.backlog


@pytest.mark.parametrize("first", [0, 5], ids=["of the compacted ledger", "of the log"])
async def test_a_compaction_that_completes_during_a_read_loses_nothing(
    open_store: OpenStore, first: int
) -> None:
    """The ledgers of the log are removed while they are read."""
    engine = FaultyEngine(None)
    config = StoreConfig(cache_bytes=0)
    ml, positions = await written(await open_store(engine=engine, config=config), 10)
    await compact(ml, positions[:3], positions[3])
    cursor = await open_compacted(ml, start=positions[first])
    hold = engine.hold_next("read")
    reading = asyncio.create_task(cursor.read(100))
    await hold.reached()
    await compact(ml, [positions[6]], positions[7])
    await ml.trim_before(positions[8])
    hold.release()
    found = [each.position for each in await reading]
    found += await read_all(cursor)
    assert [positions[6], *positions[8:]] == found[-3:]
    assert len(set(found)) == len(found)
    assert sorted(found) == found


@pytest.mark.parametrize("is_crash", [False, True])
async def test_a_compaction_that_is_cut_changes_nothing_for_a_cursor_below_the_horizon(
    store: LedgerStore, open_store: OpenStore, ml: ManagedLedger, is_crash: bool
) -> None:
    positions = await add_all(ml, numbers(0, 9))
    await compact(ml, [positions[0], positions[2], positions[5]], positions[7])
    await ml.trim_before(positions[8])
    cursor = await open_compacted(ml)
    assert [positions[0]] == [each.position for each in await cursor.read(1)]
    await cursor.mark_delete(positions[0])
    writer = await ml.begin_compaction()
    await writer.append([NewEntry(positions[5], (b"never seen",))])
    if is_crash:
        engine = store._engine
        assert isinstance(engine, FaultyEngine)
        ml = await crashed(store, engine, open_store)
        cursor = await ml.open_cursor("c")
    else:
        await writer.abort()
    found = await cursor.read(9)
    assert [positions[2], positions[5]] == [each.position for each in found]
    assert b"kept %d:%d" % positions[5] == found[-1].data
    assert positions[8:] == await read_all(cursor)


@pytest.mark.parametrize("appended_first", [False, True])
async def test_entries_that_are_appended_while_removed_ones_are_read_are_not_passed(
    open_store: OpenStore, appended_first: bool
) -> None:
    engine = FaultyEngine(None)
    config = StoreConfig(cache_bytes=0)
    ml, positions = await written(await open_store(engine=engine, config=config), 10)
    cursor = await open_compacted(ml, start=positions[8])
    hold = engine.hold_next("read")
    reading = asyncio.create_task(cursor.read(100))
    await hold.reached()
    added = []
    if appended_first:
        await ml.roll_over()
        added += await add_all(ml, numbers(10, 11))
        await ml.trim_before(added[0])
    else:
        await ml.roll_over()
        await ml.trim_before(positions[-1].successor)
        await ml.trim_before(Position(positions[-1].ledger_id + 1, 0))
    hold.release()
    found = [each.position for each in await reading]
    added += await add_all(ml, numbers(12, 13))
    found += await read_all(cursor)
    assert added == [each for each in found if each > positions[-1]]


async def test_it_begins_and_stops_to_read_compacted(
    ml: ManagedLedger, positions: list[Position]
) -> None:
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.mark_delete(positions[0])
    await compact(ml, [positions[0], positions[2]], positions[6])
    cursor.set_reads_compacted(is_wanted=True)
    assert [positions[2], *positions[7:]] == await read_all(cursor)
    cursor.set_reads_compacted(is_wanted=False)
    assert positions[1:] == await read_all(cursor)
    cursor.set_reads_compacted(is_wanted=True)
    await ml.trim_before(positions[8])
    assert [positions[2], *positions[8:]] == await read_all(cursor)
    cursor.set_reads_compacted(is_wanted=False)
    assert positions[8:] == await read_all(cursor), "of the log, what is left"


async def test_reads_from_a_position_move_nothing(
    ml: ManagedLedger, positions: list[Position]
) -> None:
    await compact(ml, [positions[0], positions[2]], positions[6])
    cursor = await open_compacted(ml)
    found = await cursor.read_from(positions[1], 9, 1 << 20)
    assert [positions[2]] == [each.position for each in found.entries]
    found = await cursor.read_from(positions[3], 9, 1 << 20)
    assert ([], positions[6]) == (list(found.entries), found.last)
    assert [positions[0], positions[2], *positions[7:]] == await read_all(cursor)
    assert positions == await read_all(await ml.open_cursor("log", initial=EARLIEST))
    assert numbers(0, 9) == [
        each.data for each in (await ml.cursors["log"].read_from(positions[0], 99, 1 << 20)).entries
    ]
    await add_all(ml, numbers(9, 10))
    assert 2 == len((await cursor.read_from(cursor.read_position, 9, 1 << 20)).entries)
