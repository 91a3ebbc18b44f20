"""Compacted positions: the positions of a log whose beginning is read from its compacted ledger.

Rule: up to the horizon of the compaction every position counts as existing, also in ledgers that
were removed, because which of them the compacted ledger has is known only when it is read. Between
the mark-delete and the read position the entries that exist are exactly those that were read; so
acknowledgements meet across what compaction has removed. All other positions are those of the log.
Must not know: acknowledgements, storage. Theory: docs/COMPACTION.md.
"""

from collections.abc import Iterable

from kledger.ledger.cursors.position_ranges import ENTRY_ID_END, PositionRanges
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.position import EARLIEST, Position

BEFORE_ALL = Position(0, -1)
"""The mark-delete position before the first entry of a compacted ledger."""


class CompactedPositions:
    """What a `CursorState` asks of `LedgerListState`, for a cursor that reads compacted entries."""

    __slots__ = ("_after", "_read", "_upto", "listed")

    def __init__(self, listed: LedgerListState) -> None:
        """Args: listed: the ledgers of the log."""
        self.listed = listed
        self._read = PositionRanges()
        # What was read is all that exists after the one, up to the other.
        self._after = self._upto = EARLIEST

    def copy(self) -> "CompactedPositions":
        """Return the same positions; nothing was read yet."""
        return CompactedPositions(self.listed)

    @property
    def horizon(self) -> Position:
        """The last position for which the compacted ledger stands; EARLIEST if there is none."""
        compacted = self.listed.head.compacted
        return EARLIEST if compacted is None else compacted.horizon

    # What was read

    def note_read(self, start: Position, positions: Iterable[Position], upto: Position) -> None:
        """Note a read that continues the one before, or the first one after `forget_read`.

        Args:
            start: where it began.
            positions: of the entries that it found, acknowledged ones too.
            upto: there are no others up to this position.
        """
        if self._upto <= self._after:
            self._after = _before(start)
        for position in positions:
            self._read.add(position)
        self._upto = max(self._upto, upto)

    def forget_read(self) -> None:
        """Forget what was read: the next read begins elsewhere."""
        self._read = PositionRanges()
        self._after = self._upto = EARLIEST

    def forget_upto(self, position: Position) -> None:
        """Forget what was read up to a position, which is acknowledged."""
        if position >= self._upto:
            self.forget_read()
        elif position > self._after:
            self._read.remove_upto(position)
            self._after = position

    def gap_end(self, position: Position) -> Position:
        """Return up to where no entry follows a position; itself if one may."""
        is_known = self._after <= position < self._upto
        return self._upto if is_known and self._read.next_after(position) is None else position

    # As in LedgerListState

    @property
    def lac(self) -> Position:
        """The last confirmed entry."""
        return self.listed.lac

    @property
    def ledger_ids(self) -> tuple[int, ...]:
        """The ledgers of the log."""
        return self.listed.ledger_ids

    @property
    def total_entries(self) -> int:
        """Entries of the log."""
        return self.listed.total_entries

    @property
    def first_position(self) -> Position:
        """The position before the first entry."""
        return BEFORE_ALL if self.horizon > EARLIEST else self.listed.first_position

    def progress_of(self, position: Position) -> int:
        """Count the entries of the log up to a position."""
        return self.listed.progress_of(position)

    def has_entries_from(self, position: Position) -> bool:
        """Return whether the position is at or before the last confirmed entry."""
        return self.listed.has_entries_from(position)

    def has_ledger(self, ledger_id: int) -> bool:
        """Return whether positions of the ledger may exist."""
        return self.listed.has_ledger(ledger_id) or ledger_id <= self.horizon.ledger_id

    def entries_in(self, ledger_id: int) -> int:
        """Return the entries of a ledger; of a removed one, as many as it may have had."""
        if self.listed.has_ledger(ledger_id):
            return self.listed.entries_in(ledger_id)
        return ENTRY_ID_END + 1

    def is_valid(self, position: Position) -> bool:
        """Return whether the position may exist or is the next to be written."""
        is_covered = position <= self.horizon and position.entry_id >= 0
        return is_covered or self.listed.is_valid(position)

    def first_readable(self, start: Position) -> Position | None:
        """Return the first position at or after `start` that may exist, None if there is none."""
        if start <= self.horizon:
            return Position(start.ledger_id, max(start.entry_id, 0))
        return self.listed.first_readable(start)

    def next_valid(self, position: Position) -> Position:
        """Return the next position that exists, or may; at the end, the next to be written."""
        if self._after <= position < self._upto:
            following = self._read.next_after(position)
            if following is not None:
                return following
            position = self._upto
        following = position.successor
        return following if following <= self.horizon else self.listed.next_valid(position)

    def previous(self, position: Position) -> Position:
        """Return the position before this one, whether or not it exists."""
        return _before(position) if position <= self.horizon else self.listed.previous(position)


def _before(position: Position) -> Position:
    return Position(position.ledger_id, max(position.entry_id - 1, -1))
