"""Cursor door: the revision controller of a cursor whose shell acts on the end of every revision.

Rule: one door per cursor, also when it is closed and opened again: a revision under way goes on,
and what the new opening reads meanwhile is outdated with it.
Must not know: what the shell does.
"""

from collections.abc import Callable

from kledger.ledger.cursors.cursor_revision_state import CursorStateRevisionController
from kledger.ledger.cursors.cursor_state import CursorState
from kledger.ledger.cursors.entry_part import EntryPart
from kledger.ledger.position import Position
from kledger.runtime.metrics import Counter


class CursorRevisions(CursorStateRevisionController[CursorState]):
    """The door of one cursor.

    Attributes:
        on_ended: called after every revision.
        target: what the revision under way will set.
        count: how many revisions have ended, of this cursor and of its openings before.
    """

    __slots__ = ("count", "on_ended", "target")

    def __init__(self, state: CursorState) -> None:
        super().__init__(state)
        self.on_ended: Callable[[], None] = _no_listener
        self.target: CursorState | None = None
        self.count = Counter()

    def acknowledge_before(self, last: Position, part: EntryPart) -> None:
        """Owe nothing up to `last`, nor that part of an entry; also when the revision has ended."""
        for state in (self._state, self.target):
            if state is not None:
                state.acknowledge_removed(last)
                if part.indexes and part.position > state.mark_delete_position:
                    state.delete_batch_index(part.position, part.indexes, part.batch_size)

    def end(self, editor: Callable[[CursorState], object]) -> int:
        """Do as any controller, and tell the shell."""
        before = self.number
        try:
            return super().end(editor)
        finally:
            self.count.value += self.number - before
            self.target = None
            self.on_ended()


def _no_listener() -> None:
    """Nobody is there yet."""
