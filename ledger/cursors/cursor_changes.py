"""Cursor changes: what was acknowledged of a cursor since its rows were written.

Rule: only what is acknowledged and never less can be told as a change. Everything else, such as a
reset, and more than is worth it, makes the next row a whole one, and nothing is collected until
that is written: a cursor that is never written collects nothing.
Must not know: rows, where the cursor stands otherwise.
"""

from collections.abc import Mapping

from pyroaring import BitMap

from kledger.ledger.cursors.cursor_records import CursorRecord
from kledger.ledger.cursors.position_ranges import PositionRanges
from kledger.ledger.position import Position

CHANGES_MAX = 10_000
"""More entries, or batches, than this between two rows, and the whole cursor is written."""


class CursorChanges:
    """The changes of one cursor.

    Attributes:
        is_whole: whether the whole cursor must be written next.
    """

    __slots__ = ("_batches", "_deleted", "is_whole")

    def __init__(self) -> None:
        self.is_whole = True
        self._deleted: list[Position] = []
        self._batches: dict[Position, BitMap] = {}

    def __len__(self) -> int:
        return len(self._deleted) + len(self._batches)

    def restart(self) -> None:
        """Collect from now on: what there was is being written."""
        self.is_whole = False
        self._deleted = []
        self._batches = {}

    def require_whole_row(self) -> None:
        """Let the next row be a whole one."""
        self.restart()
        self.is_whole = True

    def add_entry(self, position: Position) -> None:
        """Note that an entry is acknowledged."""
        if not self.is_whole:
            self._deleted.append(position)
            if len(self._deleted) > CHANGES_MAX:
                self.require_whole_row()

    def add_batch(self, position: Position, left: BitMap) -> None:
        """Note what is left of a batch; the bitmap must not be changed any more."""
        if not self.is_whole:
            self._batches[position] = left
            if len(self._batches) > CHANGES_MAX:
                self.require_whole_row()

    def record(
        self, mark_delete_position: Position, properties: Mapping[str, int], *, generation: int
    ) -> CursorRecord:
        """Return the changes as what becomes durable.

        Args:
            mark_delete_position: where the cursor stands; what it has passed is not told.
            properties: all of the cursor.
            generation: of the whole row before.
        """
        upto = mark_delete_position
        deleted = PositionRanges(each for each in self._deleted if each > upto)
        batches = sorted(
            (position, left.serialize())
            for position, left in self._batches.items()
            if position > upto and position not in deleted
        )
        return CursorRecord(
            generation=generation,
            mark_delete_position=upto,
            properties=dict(properties),
            deleted=tuple(deleted.dump()),
            batches=tuple(batches),
        )
