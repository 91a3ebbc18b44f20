"""Compacted ledgers: all or nothing, original positions, no garbage, one compaction at a time."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from kledger.ledger import (
    COMPACTION_CURSOR,
    EARLIEST,
    AlreadyClosed,
    CompactedLedgerReplaced,
    CompactionRunning,
    CompactionWriter,
    Fenced,
    InvalidArgument,
    LedgerStore,
    ManagedLedger,
    NewEntry,
    Position,
    ResetInProgress,
    StorageFailed,
)
from kledger.ledger.handle.compaction_writer import GROUP_BYTES
from kledger.ledger.inspection import inspect_folder
from kledger.ledger.testing import FaultyEngine
from tests.ledger.words import SMALL, add_all, datas, numbers


def new_entries(positions: Iterable[Position], text: bytes = b"kept") -> list[NewEntry]:
    return [NewEntry(position, (text, b" at ", str(position).encode())) for position in positions]


async def compacted(ml: ManagedLedger, kept: Iterable[Position], horizon: Position) -> int:
    """Compact; return the id of the new ledger."""
    writer = await ml.begin_compaction()
    await writer.append(new_entries(kept))
    await writer.complete(horizon)
    return writer.ledger_id


async def everything(ml: ManagedLedger) -> list[tuple[int, Position, bytes]]:
    """Read the compacted ledger as a whole."""
    present = ml.compacted
    assert present is not None
    found = await ml.compacted_reader.read(present, 0, count=1000)
    return [(each.number, each.position, bytes(each.data)) for each in found]


async def test_a_complete_compaction_is_seen_as_a_whole(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 10))
    writer = await ml.begin_compaction()
    await writer.append(new_entries([positions[1], positions[5]]))
    assert ml.compacted is None
    done = await writer.complete(positions[7], [(b"row", b"with it")])
    assert done == ml.compacted
    assert (2, positions[7]) == (done.entries, done.horizon)
    assert [
        (0, positions[1], b"kept at %s" % str(positions[1]).encode()),
        (1, positions[5], b"kept at %s" % str(positions[5]).encode()),
    ] == await everything(ml)
    assert numbers(0, 10) == datas(await ml.read_entries(EARLIEST, 99)), "the log is as before"


async def test_the_number_beside_an_entry_is_read_with_it(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 3))
    writer = await ml.begin_compaction()
    await writer.append(
        [NewEntry(positions[0], (b"a",)), NewEntry(positions[2], (b"b", b"c"), attribute=-7)]
    )
    found = await ml.compacted_reader.read(await writer.complete(positions[2]), 0, count=9)
    assert [(0, b"a"), (-7, b"bc")] == [(each.attribute, bytes(each.data)) for each in found]


async def test_rows_of_the_caller_become_durable_with_it(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 3))
    writer = await ml.begin_compaction()
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await writer.complete(positions[2], [(b"row", b"1")])
    assert (None, None) == (ml.compacted, store.get_row(b"row"))
    await writer.complete(positions[2], [(b"row", b"1")])
    assert b"1" == store.get_row(b"row")


async def test_the_ledger_that_is_replaced_is_dropped_with_the_change(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 10))
    first = await compacted(ml, positions[:2], positions[3])
    before = ml.compacted
    assert before is not None
    second = await compacted(ml, positions[1:2], positions[7])
    assert [positions[1]] == [position for _, position, _ in await everything(ml)]
    assert (-1, 0) == (engine.last_entry(first), engine.last_entry(second))
    with pytest.raises(CompactedLedgerReplaced):
        await ml.compacted_reader.read(before, 0, count=1)


async def test_a_read_that_the_change_overtakes_says_so(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 10))
    await compacted(ml, positions[:2], positions[3])
    before = ml.compacted
    assert before is not None
    hold = engine.hold_next("read")
    read = asyncio.ensure_future(ml.compacted_reader.read(before, 0, count=1))
    await hold.reached()
    await compacted(ml, positions[1:2], positions[7])
    hold.release()
    with pytest.raises(CompactedLedgerReplaced):
        await read


async def test_the_cursor_of_compactions_moves_with_the_horizon(ml: ManagedLedger) -> None:
    """It keeps what is not compacted yet, and does so again after a restart."""
    positions = await add_all(ml, numbers(0, 10))
    writer = await ml.begin_compaction()
    cursor = ml.compaction_cursor
    assert cursor is not None
    assert positions[0] > cursor.mark_delete_position
    await ml.truncate()
    assert 11 == sum(info.entries for info in ml.ledgers)
    await writer.complete(positions[7])
    assert positions[7] == cursor.mark_delete_position
    await ml.truncate()
    assert numbers(8, 10) == datas(await ml.read_entries(EARLIEST, 99))


async def test_a_running_reset_of_the_cursor_delays_the_change(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 4))
    writer = await ml.begin_compaction()
    cursor = ml.compaction_cursor
    assert cursor is not None
    cursor.revision.start()
    with pytest.raises(ResetInProgress):
        await writer.complete(positions[2])
    assert ml.compacted is None
    cursor.revision.end(lambda state: None)
    await writer.complete(positions[2])
    assert positions[2] == cursor.mark_delete_position


async def test_nothing_else_uses_the_cursor_of_compactions(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 4))
    await compacted(ml, positions[:1], positions[2])
    await ml.open_cursor("mine", initial=EARLIEST)
    assert {"mine"} == set(ml.cursors) == ml.cursor_names
    assert positions[0] > (ml.slowest_position or positions[0])
    for call in (ml.open_cursor, ml.delete_cursor):
        with pytest.raises(InvalidArgument, match="cursor of compactions"):
            await call(COMPACTION_CURSOR)


async def test_two_compactions_at_once_are_refused(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 4))
    writer = await ml.begin_compaction()
    with pytest.raises(CompactionRunning, match="orders"):
        await ml.begin_compaction()
    await writer.complete(positions[2])
    again = await ml.begin_compaction()
    await again.abort()
    await (await ml.begin_compaction()).complete(positions[3])


async def test_an_aborted_compaction_leaves_nothing(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 4))
    writer = await ml.begin_compaction()
    await writer.append(new_entries(positions))
    assert 4 == engine.last_entry(writer.ledger_id)
    await writer.abort()
    assert (-1, None) == (engine.last_entry(writer.ledger_id), ml.compacted)
    with pytest.raises(AlreadyClosed):
        await writer.append(new_entries(positions))
    with pytest.raises(AlreadyClosed):
        await writer.complete(positions[3])
    await writer.abort()


async def test_positions_ascend_and_the_horizon_is_behind_them(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 4))
    writer = await ml.begin_compaction()
    await writer.append(new_entries(positions[1:3]))
    with pytest.raises(InvalidArgument, match="horizon"):
        await writer.complete(positions[1])
    with pytest.raises(InvalidArgument, match="expected one after"):
        await writer.append(new_entries(positions[2:3]))


async def test_no_append_waits_for_more_than_a_small_group(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 7))
    writer = await ml.begin_compaction()
    before = engine.calls["commit"]
    half = bytes(GROUP_BYTES // 2)
    await writer.append([NewEntry(position, (half,)) for position in positions])
    assert 4 == engine.calls["commit"] - before
    await writer.complete(positions[7])
    assert 8 == len(await everything(ml))


async def test_what_lacks_entries_cannot_be_completed(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    """It was counted with entries that a failed append had not stored."""
    positions = await add_all(ml, numbers(0, 4))
    writer = await ml.begin_compaction()
    await writer.append(new_entries(positions[:1]))
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await writer.append(new_entries(positions[1:2]))
    for work in (writer.append(new_entries(positions[2:3])), writer.complete(positions[2])):
        with pytest.raises(StorageFailed, match="lost entries"):
            await work
    await writer.abort()
    assert ml.compacted is None


async def test_a_failed_write_is_aborted_and_the_next_compaction_drops_the_rest(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 4))
    first = await ml.begin_compaction()
    await first.append(new_entries(positions[:1]))
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await first.append(new_entries(positions[1:]))
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await first.abort()
    assert 0 == engine.last_entry(first.ledger_id), "what was written is still there"
    second = await compacted(ml, positions[:1], positions[2])
    assert (-1, 0) == (engine.last_entry(first.ledger_id), engine.last_entry(second))


async def test_another_owner_ends_a_compaction(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 4))
    writer = await ml.begin_compaction()
    await writer.append(new_entries(positions))
    successor = await store.open_managed_ledger("orders", config=SMALL)
    for work in (writer.append(new_entries([Position(99, 0)])), writer.complete(Position(99, 0))):
        with pytest.raises(Fenced):
            await work
    assert (-1, None) == (engine.last_entry(writer.ledger_id), successor.compacted)
    with pytest.raises(Fenced):
        await writer.abort()
    await compacted(successor, positions[:1], positions[2])


async def test_a_deleted_managed_ledger_leaves_neither_ledger(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 4))
    done = await compacted(ml, positions[:1], positions[2])
    writer = await ml.begin_compaction()
    await writer.append(new_entries(positions))
    await store.delete_managed_ledger("orders")
    assert (-1, -1) == (engine.last_entry(done), engine.last_entry(writer.ledger_id))
    with pytest.raises(Fenced):
        await writer.append(new_entries([Position(99, 0)]))


async def test_positions_are_found(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 12))
    await compacted(ml, positions[1:9:3], positions[8])
    reader, present = ml.compacted_reader, ml.compacted
    assert present is not None
    for index, position in enumerate(positions):
        kept = [each for each in positions[1:9:3] if each < position]
        assert len(kept) == await reader.find(present, position), index
    assert [] == await reader.read(present, present.entries, count=5)
    assert 1 == len(await reader.read(present, 0, count=5, bytes_max=1))


@pytest.mark.parametrize("is_complete", [False, True])
async def test_a_power_cut_takes_all_of_it_or_nothing(tmp_path: Path, *, is_complete: bool) -> None:
    """What is written before `complete` is not synced."""
    engine = FaultyEngine(tmp_path)
    async with LedgerStore.open(None, engine=engine) as store:
        ml = await store.open_managed_ledger("orders", config=SMALL)
        positions = await add_all(ml, numbers(0, 10))
        writer = await ml.begin_compaction()
        synced = engine.calls["sync"]
        await writer.append(new_entries(positions[4:6]))
        assert synced == engine.calls["sync"]
        if is_complete:
            await writer.complete(positions[7])
        engine.drop_unsynced()
    async with LedgerStore.open(None, engine=engine) as store:
        ml = await store.open_managed_ledger("orders", config=SMALL)
        assert numbers(0, 10) == datas(await ml.read_entries(EARLIEST, 99))
        if is_complete:
            assert positions[4:6] == [position for _, position, _ in await everything(ml)]
        else:
            assert ml.compacted is None
            assert -1 == engine.last_entry(writer.ledger_id)
    engine.close()


@pytest.mark.parametrize("step", ["written", "complete", "replaced"])
async def test_a_restart_keeps_what_was_complete(tmp_path: Path, step: str) -> None:
    async with LedgerStore.open(tmp_path) as store:
        ml = await store.open_managed_ledger("orders", config=SMALL)
        positions = await add_all(ml, numbers(0, 10))
        await compacted(ml, positions[:2], positions[3])
        writer: CompactionWriter = await ml.begin_compaction()
        await writer.append(new_entries(positions[4:6]))
        if step != "written":
            await writer.complete(positions[7])
        if step == "replaced":
            await compacted(ml, positions[5:6], positions[8])
    async with LedgerStore.open(tmp_path) as store:
        ml = await store.open_managed_ledger("orders", config=SMALL)
        kept = {"written": positions[:2], "complete": positions[4:6], "replaced": positions[5:6]}
        horizon = {"written": positions[3], "complete": positions[7], "replaced": positions[8]}
        assert kept[step] == [position for _, position, _ in await everything(ml)]
        cursor = ml.compaction_cursor
        assert cursor is not None
        assert horizon[step] == cursor.mark_delete_position
        assert numbers(0, 10) == datas(await ml.read_entries(EARLIEST, 99))
    inspection = inspect_folder(tmp_path, check_entry=lambda name, position, data: None)
    assert [] == inspection.problems
