"""Cursor rows: whether the next row of a cursor is a whole one or a change to the one before.

Rule: each whole row has a generation higher than any before, and the change rows behind it carry
that: those of another generation say nothing any more and are written over. What was acknowledged
in a generation is never owed again in it, so any of its changes may be missing and the others still
hold. A whole row is written when there is none to go on from, when there is little to write anyway,
and when the changes have grown as large as the row that they go on from: so a change costs what it
is, and twice that on average with the whole rows. What was left out of a whole row above the limit
must not be wanted before the next one: such a row has room to spare, and its changes end with it.
Must not know: keys, what is acknowledged.
"""

from collections.abc import Sized

from kledger.ledger.position import Position

SMALL_PARTS_MAX = 64
"""A cursor with so many entries and batches acknowledged alone is written as a whole each time."""
CHANGE_ROWS_MAX = 256
"""More change rows than this behind a whole one are not written."""
SPARE_PARTS = 4
"""A whole row may go beyond the limit of ranges, and of batches, by this part of it."""
CHANGE_BYTES_MIN = 4 * 1024
"""Changes of so few bytes in all are no reason for a whole row, however small that was."""


class CursorRowsState:
    """The rows of one cursor.

    Attributes:
        generation: of the newest whole row that was written, or was to be.
        rows_kept: change rows with lower numbers than this may be in the storage.
        parts_max: so many ranges, and so many batches, a whole row may have.
    """

    __slots__ = (
        "_change_bytes",
        "_cut_at",
        "_has_whole",
        "_next_row",
        "_spare",
        "_spare_left",
        "_whole_bytes",
        "generation",
        "parts_max",
        "rows_kept",
    )

    def __init__(self, limit: int, *, generation: int = 0, rows_kept: int = 0) -> None:
        """Args: limit: of ranges, and of batches. generation, rows_kept: what recovery found."""
        self.generation = generation
        self.rows_kept = rows_kept
        self._spare = limit // SPARE_PARTS
        self.parts_max = limit + self._spare
        self._has_whole = False
        self._cut_at: Position | None = None
        self._whole_bytes = self._change_bytes = self._next_row = self._spare_left = 0

    def is_whole_due(self, mark_delete_position: Position, part_count: int, changes: Sized) -> bool:
        """Tell whether to write the whole cursor next.

        Args:
            mark_delete_position: the mark-delete position.
            part_count: entries and batches of the cursor that are acknowledged alone.
            changes: those of them that are new.
        """
        return (
            not self._has_whole
            or part_count <= SMALL_PARTS_MAX
            or self._next_row >= CHANGE_ROWS_MAX
            or self._change_bytes >= max(self._whole_bytes, CHANGE_BYTES_MIN)
            # An entry joins two ranges at most; how many go with the place is not known here.
            or (self._cut_at is not None and self._cut_at != mark_delete_position)
            or (self._cut_at is not None and self._spare_left < len(changes))
        )

    def begin_whole(self) -> int:
        """Return the generation of the whole row that is about to be written."""
        self.generation += 1
        return self.generation

    def wrote_whole(self, size: int, *, cut_at: Position | None) -> None:
        """A whole row is on its way.

        Args:
            size: of the row.
            cut_at: the mark-delete position if something was left out of it.
        """
        self._has_whole, self._cut_at, self._spare_left = True, cut_at, self._spare
        self._whole_bytes, self._change_bytes, self._next_row = size, 0, 0

    def write_change(self, size: int, change_count: int) -> int:
        """Return the number of the change row that is on its way."""
        number = self._next_row
        self._next_row = number + 1
        self.rows_kept = max(self.rows_kept, self._next_row)
        self._change_bytes += size
        self._spare_left -= change_count
        return number

    def begin_anew(self) -> None:
        """The rows were replaced by a snapshot: nothing goes on from them."""
        self._has_whole = False
