"""Tail state: where the newest entries of a partition are, and how many bytes lie between offsets.

Rule: one row per entry in parallel arrays, oldest first, pending appends at the end; the number of
rows is bounded, older entries are found through the offset index.
Must not know: the entries' bytes, who waits, what is durable.
"""

from array import array
from bisect import bisect_left, bisect_right

ENTRIES_MAX = 4096
ENTRIES_KEPT = 2048


class TailState:
    """Parallel arrays over the newest entries; 40 bytes a row."""

    __slots__ = ("_bytes", "bases", "entry_ids", "ledger_ids", "max_timestamps")

    def __init__(self) -> None:
        self.bases = array("q")
        self.ledger_ids = array("q")
        self.entry_ids = array("q")
        self.max_timestamps = array("q")
        self._bytes = array("q", [0])  # one more than rows: bytes before each, and the total

    def __len__(self) -> int:
        return len(self.bases)

    def append(
        self, base_offset: int, size: int, max_timestamp: int, ledger_id: int, entry_id: int
    ) -> None:
        """Add the newest entry."""
        cumulated = self._bytes
        self.bases.append(base_offset)
        self.ledger_ids.append(ledger_id)
        self.entry_ids.append(entry_id)
        self.max_timestamps.append(max_timestamp)
        cumulated.append(cumulated[-1] + size)
        if len(cumulated) > ENTRIES_MAX:
            self._drop_oldest(len(self.bases) - ENTRIES_KEPT)

    def truncate(self, base_offset: int) -> None:
        """Forget the entry that begins at that offset and all newer ones."""
        row = bisect_left(self.bases, base_offset)
        for column in (self.bases, self.ledger_ids, self.entry_ids, self.max_timestamps):
            del column[row:]
        del self._bytes[row + 1 :]

    def find(self, offset: int) -> int:
        """Row of the entry that holds an offset, -1 if that is older than the tail."""
        return bisect_right(self.bases, offset) - 1

    def position_of(self, offset: int) -> tuple[int, int] | None:
        """Ledger and entry id of the entry that holds an offset, None if older than the tail."""
        row = self.find(offset)
        return None if row < 0 else (self.ledger_ids[row], self.entry_ids[row])

    def bytes_between(self, offset: int, upto: int) -> int | None:
        """Bytes of the entries from the one that holds `offset` to the one before `upto`.

        Returns:
            None when `offset` is older than the tail.
        """
        bases = self.bases
        row = bisect_right(bases, offset) - 1
        if row < 0:
            return None
        cumulated = self._bytes
        return cumulated[bisect_left(bases, upto, row)] - cumulated[row]

    def end_row(self, row: int, upto: int, bytes_max: int) -> int:
        """The first row from `row` on that no longer fits below `upto` or into the bytes."""
        cumulated = self._bytes
        end = bisect_left(self.bases, upto, row)
        return bisect_right(cumulated, cumulated[row] + bytes_max, row, end + 1) - 1

    def size_of(self, row: int, end_row: int) -> int:
        """Bytes of the entries of the rows up to, without, `end_row`."""
        return self._bytes[end_row] - self._bytes[row]

    def _drop_oldest(self, count: int) -> None:
        for column in (self.bases, self.ledger_ids, self.entry_ids, self.max_timestamps):
            del column[:count]
        del self._bytes[:count]
