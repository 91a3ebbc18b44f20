"""Cursor door: the revision controller of a cursor whose shell acts on the end of every revision.

Rule: one door per cursor, also when it is closed and opened again: a revision under way goes on,
and what the new opening reads meanwhile is outdated with it.
Must not know: what the shell does.
"""

from collections.abc import Callable

from ledger.cursors.cursor_revision_state import CursorStateRevisionController
from ledger.cursors.cursor_state import CursorState


class CursorDoor(CursorStateRevisionController[CursorState]):
    """`ended` is called after every revision."""

    __slots__ = ("ended",)

    def __init__(self, state: CursorState) -> None:
        super().__init__(state)
        self.ended: Callable[[], None] = _nothing

    def end(self, editor: Callable[[CursorState], object]) -> int:
        """Do as any controller, and tell the shell."""
        try:
            return super().end(editor)
        finally:
            self.ended()


def _nothing() -> None:
    """Nobody is there yet."""
