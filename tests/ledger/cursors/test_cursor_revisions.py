"""Revisions of a cursor with all that goes along in one step, and what is acknowledged at once.

The calls are those of `Cursor`; its other ones are in test_cursor.py.
"""

import asyncio
from collections.abc import Callable

import pytest

from kledger.ledger import (
    LATEST,
    Cursor,
    EntryPart,
    InvalidArgument,
    InvalidPosition,
    LedgerStore,
    ManagedLedger,
    Position,
    ResetInProgress,
    StorageFailed,
)
from kledger.ledger.cursors.cursor import CursorRevisions
from kledger.ledger.cursors.cursor_state import CursorState
from kledger.ledger.testing import FaultyEngine
from tests.ledger.cursors.words import crashed, unacknowledged
from tests.ledger.words import OpenStore, datas, ledger_list, numbers, opened, pos


async def test_a_reset_into_a_batch_acknowledges_its_first_records_in_the_same_step(
    cursor: Cursor,
    store: LedgerStore,
    engine: FaultyEngine,
    open_store: OpenStore,
    positions: list[Position],
) -> None:
    """The position came first and the records in a second write: a crash redelivered them all."""
    await cursor.mark_delete(positions[7])
    commits = engine.calls["commit"]
    await cursor.reset(positions[2], acknowledged=range(3), batch_size=5)
    assert commits + 1 == engine.calls["commit"]
    assert frozenset({3, 4}) == cursor.batch_indexes(positions[2])
    ml = await crashed(store, engine, open_store)
    assert numbers(2, 9) == await unacknowledged(ml)
    assert frozenset({3, 4}) == ml.cursors["c"].batch_indexes(positions[2])


async def test_a_new_cursor_is_durable_with_its_position_or_does_not_exist(
    store: LedgerStore,
    ml: ManagedLedger,
    engine: FaultyEngine,
    open_store: OpenStore,
    positions: list[Position],
) -> None:
    """It was made at the first entry, and set in a second write: a crash left it between."""
    commits = engine.calls["commit"]
    cursor = await ml.open_cursor_at("c", positions[2], acknowledged=range(3), batch_size=5)
    assert commits + 1 == engine.calls["commit"]
    expected = (8, frozenset({3, 4}))
    assert expected == (cursor.backlog, cursor.batch_indexes(positions[2]))
    assert numbers(2, 9) == datas(await cursor.read(20))
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await ml.open_cursor_at("d", positions[4])
    with pytest.raises(InvalidArgument):
        await ml.open_cursor_at("d", positions[4], acknowledged=[5], batch_size=5)
    ml = await crashed(store, engine, open_store)
    assert ["c"] == list(ml.cursors)
    assert expected == (ml.cursors["c"].backlog, ml.cursors["c"].batch_indexes(positions[2]))


@pytest.mark.parametrize(("start", "redelivered"), [(LATEST, []), (2, numbers(5, 9))])
async def test_entries_removed_while_a_cursor_is_made_are_acknowledged(
    ml: ManagedLedger,
    engine: FaultyEngine,
    positions: list[Position],
    start: Position | int,
    redelivered: list[bytes],
) -> None:
    place = positions[start] if isinstance(start, int) else start
    hold = engine.hold_next("commit")
    opening = asyncio.ensure_future(ml.open_cursor_at("c", place))
    await hold.reached()
    ml.acknowledge_before(positions[5], records=1, batch_size=2)
    hold.release()
    cursor = await opening
    assert redelivered == datas(await cursor.read(20))
    assert (frozenset({1}) if redelivered else None) == cursor.batch_indexes(positions[5])


async def test_a_reset_into_a_batch_that_was_not_written_changes_nothing(
    cursor: Cursor, engine: FaultyEngine, positions: list[Position]
) -> None:
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await cursor.reset(positions[2], acknowledged=[0], batch_size=5)
    assert (10, None) == (cursor.backlog, cursor.batch_indexes(positions[2]))


async def test_what_goes_along_with_a_revision_is_true_in_the_same_step(
    cursor: Cursor, engine: FaultyEngine, positions: list[Position]
) -> None:
    """Between two steps a consumer could join, and see the one and not the other."""
    seen: list[tuple[bool, Position]] = []

    def see() -> None:
        seen.append((cursor.revision.is_running, cursor.mark_delete_position))

    def alongside() -> None:
        see()
        asyncio.get_running_loop().call_soon(see)

    hold = engine.hold_next("sync")
    work = cursor.revise(lambda state: state.reset_to(positions[3]), alongside=alongside)
    revising = asyncio.ensure_future(work)
    await hold.reached()
    assert [] == seen
    hold.release()
    await revising
    assert (True, False, positions[2]) == (seen[0][0], *seen[1])
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await cursor.revise(lambda state: state.reset_to(positions[5]), alongside=alongside)
    assert (2, positions[2]) == (len(seen), cursor.mark_delete_position)


async def test_an_edit_that_is_refused_starts_no_revision(
    cursor: Cursor, positions: list[Position]
) -> None:
    number = cursor.revision.number
    with pytest.raises(InvalidPosition):
        await cursor.revise(lambda state: state.mark_delete(positions[-1].successor))
    assert (number, False) == (cursor.revision.number, cursor.revision.is_running)


async def test_acknowledgements_in_one_step_are_true_at_once_and_durable_after_waiting(
    cursor: Cursor,
    store: LedgerStore,
    engine: FaultyEngine,
    open_store: OpenStore,
    positions: list[Position],
) -> None:
    commits = engine.calls["commit"]
    parts = [EntryPart(positions[3], None), EntryPart(positions[5], [0, 1], 3)]
    assert cursor.acknowledge_nowait(parts, upto=positions[1])
    assert (positions[1], 7) == (cursor.mark_delete_position, cursor.backlog)
    await cursor.wait_durable()
    assert commits + 1 == engine.calls["commit"]
    ml = await crashed(store, engine, open_store)
    assert [b"2", *numbers(4, 9)] == await unacknowledged(ml)
    assert frozenset({2}) == ml.cursors["c"].batch_indexes(positions[5])


async def test_acknowledgements_in_one_step_know_revisions(
    cursor: Cursor, positions: list[Position]
) -> None:
    number = cursor.revision.number
    await cursor.rewind()
    assert not cursor.acknowledge_nowait([EntryPart(positions[0], None)], revision=number)
    cursor.revision.start()
    with pytest.raises(ResetInProgress):
        cursor.acknowledge_nowait([EntryPart(positions[0], None)])
    assert 10 == cursor.backlog


Edit = Callable[[CursorState], object]


def test_the_newest_opening_is_called_also_when_the_editor_raises() -> None:
    revisions = CursorRevisions(CursorState(ledger_list(opened(3), confirmed=5), pos("3:0")))
    called: list[str] = []
    revisions.start()
    revisions.end(CursorState.rewind)
    revisions.on_ended = lambda: called.append("first")
    revisions.start()
    revisions.end(CursorState.rewind)
    revisions.start()
    revisions.on_ended = lambda: called.append("second")
    with pytest.raises(ZeroDivisionError):
        revisions.end(lambda state: 1 / 0)
    assert ["first", "second"] == called
    assert (3, False) == (revisions.number, revisions.is_running)


def everything_of(state: CursorState) -> list[object]:
    record, _ = state.record(ranges_max=100, batches_max=100)
    return [record, state.read_position, state.backlog, state.version]


def set_in_place(state: CursorState) -> None:
    state.properties["page"] = 9
    state.mark_delete_position, state.read_position = pos("3:4"), pos("3:0")


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(set_in_place, id="positions and properties"),
        pytest.param(lambda state: state.delete([pos("3:3")]), id="another hole"),
        pytest.param(lambda state: state.delete([pos("3:1")]), id="holes that are swallowed"),
        pytest.param(lambda state: state.mark_delete(pos("3:4"), {"page": 2}), id="mark-delete"),
        pytest.param(lambda state: state.delete_batch_index(pos("3:5"), [2], 4), id="same batch"),
        pytest.param(lambda state: state.delete_batch_index(pos("3:3"), [2], 4), id="new batch"),
        pytest.param(lambda state: state.delete_batch_index(pos("3:5"), range(4), 4), id="batch"),
        pytest.param(lambda state: state.reset_to(pos("3:0")), id="reset"),
        pytest.param(lambda state: state.seek(pos("3:0"), force=True), id="seek"),
        pytest.param(lambda state: state.acknowledge_removed(pos("3:3")), id="removed"),
    ],
)
def test_an_editor_that_raises_has_changed_nothing(edit: Edit) -> None:
    """Holes, partial batches and properties stayed changed, and the next row made them durable."""
    state = CursorState(ledger_list(opened(3), confirmed=8), pos("3:0"), properties={"page": 1})
    state.delete([pos("3:2"), pos("3:6")])
    state.delete_batch_index(pos("3:5"), [0], 4)
    state.read_upto(pos("3:6"))
    before = everything_of(state)

    def fail(each: CursorState) -> None:
        edit(each)
        assert before != everything_of(each), "the editor changed nothing"
        raise ZeroDivisionError

    revisions = CursorRevisions(state)
    number = revisions.start()
    with pytest.raises(ZeroDivisionError):
        revisions.end(fail)
    assert before == everything_of(state)
    assert [frozenset({1, 2, 3}), None] == [state.batch_indexes(pos(at)) for at in ("3:5", "3:3")]
    assert revisions.is_outdated(number)
    assert not revisions.is_running
    state.delete([pos("3:1")])
    assert pos("3:2") == state.mark_delete_position
