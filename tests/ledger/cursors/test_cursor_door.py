"""A door tells whoever has the cursor now of the end of every revision."""

import pytest

from ledger.cursors.cursor_door import CursorDoor
from ledger.cursors.cursor_state import CursorState
from tests.ledger.words import ledger_list, opened, pos


def test_the_newest_owner_is_told_also_when_the_editor_raises() -> None:
    door = CursorDoor(CursorState(ledger_list(opened(3), confirmed=5), pos("3:0")))
    heard: list[str] = []
    door.start()
    door.end(CursorState.rewind)
    door.ended = lambda: heard.append("first")
    door.start()
    door.end(CursorState.rewind)
    door.start()
    door.ended = lambda: heard.append("second")
    with pytest.raises(ZeroDivisionError):
        door.end(lambda state: 1 / 0)
    assert ["first", "second"] == heard
    assert (3, False) == (door.number, door.is_running)
