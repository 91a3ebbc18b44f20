"""A door tells whoever has the cursor now of the end of every revision."""

from collections.abc import Callable

import pytest

from kledger.ledger.cursors.cursor_state import CursorState
from kledger.ledger.cursors.revisions import CursorRevisions
from tests.ledger.words import ledger_list, opened, pos

Edit = Callable[[CursorState], object]


def test_the_newest_owner_is_told_also_when_the_editor_raises() -> None:
    revisions = CursorRevisions(CursorState(ledger_list(opened(3), confirmed=5), pos("3:0")))
    heard: list[str] = []
    revisions.start()
    revisions.end(CursorState.rewind)
    revisions.on_ended = lambda: heard.append("first")
    revisions.start()
    revisions.end(CursorState.rewind)
    revisions.start()
    revisions.on_ended = lambda: heard.append("second")
    with pytest.raises(ZeroDivisionError):
        revisions.end(lambda state: 1 / 0)
    assert ["first", "second"] == heard
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
    """Holes, batches in parts and properties stayed changed, and the next row made them durable."""
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
