"""Cursor rows: whether the next row of a cursor is a whole one or a change to the one before.

Rule: each whole row has a higher generation than any before, and its change rows repeat it; change
rows of another generation are void and are overwritten. Within a generation entries are only
acknowledged, never the reverse, so any of its changes may be missing and the others still hold. A
whole row is written when the storage has none of this opening, when it is small anyway, and when
the changes since the last one have grown as large as it: so the whole rows at most double the bytes
of the changes. A whole row above the limit leaves acknowledgements out; its changes end before
those could matter, which is why such a row has room to spare.
Must not know: keys, acknowledgements.
"""

from collections.abc import Sized

from kledger.ledger.position import Position

SMALL_PARTS_MAX = 64
"""Up to so many individually acknowledged entries and batches the whole cursor is written."""
CHANGE_ROWS_MAX = 256
"""Change rows after one whole row, at most."""
SPARE_PARTS = 4
"""A whole row may exceed the limit of ranges, and of batches, by one part in so many."""
CHANGE_BYTES_MIN = 4 * 1024
"""Changes of fewer bytes in all do not cause a whole row, however small the last one was."""


class CursorRowsState:
    """The rows of one cursor.

    Attributes:
        generation: of the newest whole row that was written or tried.
        rows_kept: change rows with lower numbers than this may be in the storage.
        parts_max: the ranges, and the batches, that a whole row may have.
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
        """Return whether to write the whole cursor next.

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
            # One entry joins two ranges at most; the mark-delete position may swallow any number.
            or (self._cut_at is not None and self._cut_at != mark_delete_position)
            or (self._cut_at is not None and self._spare_left < len(changes))
        )

    def begin_whole(self) -> int:
        """Return the generation of the whole row that is about to be written."""
        self.generation += 1
        return self.generation

    def wrote_whole(self, size: int, *, cut_at: Position | None) -> None:
        """Note that a whole row is being written.

        Args:
            size: of the row.
            cut_at: the mark-delete position if something was left out of it.
        """
        self._has_whole, self._cut_at, self._spare_left = True, cut_at, self._spare
        self._whole_bytes, self._change_bytes, self._next_row = size, 0, 0

    def write_change(self, size: int, change_count: int) -> int:
        """Note that a change row is being written; return its number."""
        number = self._next_row
        self._next_row = number + 1
        self.rows_kept = max(self.rows_kept, self._next_row)
        self._change_bytes += size
        self._spare_left -= change_count
        return number

    def begin_anew(self) -> None:
        """Require a whole row next: a snapshot has replaced the rows."""
        self._has_whole = False
