"""Position ranges: a set of entries, as one compressed bitmap per ledger.

Rule: it holds entries and shows them as ranges. A range never crosses a ledger, because the set
does not know where a ledger ends, and which one follows.
Must not know: what the entries are marked for. Library: Roaring bitmaps (pyroaring).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pyroaring import BitMap

from kledger.ledger.position import EARLIEST, Position

ENTRY_ID_END = (1 << 32) - 1
"""Entry ids are lower: Roaring bitmaps hold 32-bit numbers."""


class EntryRange(NamedTuple):
    """Consecutive entries of one ledger, from `first` to `last`, both included."""

    ledger_id: int
    first: int
    last: int


class PositionRanges:
    """A set of positions. `count` is how many it has."""

    __slots__ = ("_bitmaps", "_ids", "count")

    def __init__(self, positions: Iterable[Position] = ()) -> None:
        self._bitmaps: dict[int, BitMap] = {}
        self._ids: list[int] = []
        self.count = 0
        for position in positions:
            self.add(position)

    def __contains__(self, position: Position) -> bool:
        bitmap = self._bitmaps.get(position.ledger_id)
        return bitmap is not None and position.entry_id >= 0 and position.entry_id in bitmap

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, position: Position) -> bool:
        """Add an entry; return whether it is new."""
        if position in self:
            return False
        bitmap = self._bitmaps.get(position.ledger_id)
        if bitmap is None:
            bitmap = self._bitmaps[position.ledger_id] = BitMap()
            insort(self._ids, position.ledger_id)
        bitmap.add(position.entry_id)
        self.count += 1
        return True

    def remove_upto(self, position: Position) -> None:
        """Remove everything up to a position, included."""
        ids = self._ids[: bisect_left(self._ids, position.ledger_id)]
        for ledger_id in ids:
            self.remove_ledger(ledger_id)
        self._remove(position.ledger_id, 0, position.entry_id + 1)

    def remove_in_ledger_from(self, position: Position) -> None:
        """Remove everything from a position on in its own ledger."""
        self._remove(position.ledger_id, max(position.entry_id, 0), ENTRY_ID_END + 1)

    def remove_ledger(self, ledger_id: int) -> None:
        """Remove everything of one ledger."""
        bitmap = self._bitmaps.pop(ledger_id, None)
        if bitmap is not None:
            self._ids.remove(ledger_id)
            self.count -= len(bitmap)

    @property
    def ledger_ids(self) -> tuple[int, ...]:
        """The ledgers that have entries in the set, ascending."""
        return tuple(self._ids)

    @property
    def last(self) -> Position:
        """The newest entry; EARLIEST when there is none."""
        if not self._ids:
            return EARLIEST
        ledger_id = self._ids[-1]
        return Position(ledger_id, self._bitmaps[ledger_id].max())

    def count_in(self, ledger_id: int) -> int:
        """Return how many entries of one ledger are in the set."""
        bitmap = self._bitmaps.get(ledger_id)
        return len(bitmap) if bitmap is not None else 0

    def range_end(self, position: Position) -> Position:
        """Return the last entry of the range of `position`, which must be in the set."""
        assert position in self, f"{position} is not in the set"
        bitmap, first = self._bitmaps[position.ledger_id], position.entry_id
        known, step = first, 1
        while bitmap.contains_range(known + 1, known + 1 + step):
            known, step = known + step, step * 2
        while step > 1:
            step //= 2
            if bitmap.contains_range(known + 1, known + 1 + step):
                known += step
        return Position(position.ledger_id, known)

    def first_from(self, position: Position) -> int | None:
        """Return the first entry id of the set at or after a position, in its ledger."""
        bitmap = self._bitmaps.get(position.ledger_id)
        if bitmap is None:
            return None
        start = max(position.entry_id, 0)
        return bitmap.next_set_bit(start) if start <= bitmap.max() else None

    def next_after(self, position: Position) -> Position | None:
        """Return the first entry of the set after a position, in whatever ledger."""
        ledger_id = position.ledger_id
        entry_id = self.first_from(Position(ledger_id, position.entry_id + 1))
        if entry_id is not None:
            return Position(ledger_id, entry_id)
        index = bisect_right(self._ids, ledger_id)
        if index == len(self._ids):
            return None
        return Position(self._ids[index], self._bitmaps[self._ids[index]].min())

    def nth_absent(self, after: Position, count: int) -> int:
        """Return the id of the `count`-th absent entry after `after`, in its ledger."""
        bitmap = self._bitmaps.get(after.ledger_id, BitMap())
        before = bitmap.rank(after.entry_id) if after.entry_id >= 0 else 0
        low, high = after.entry_id + count, after.entry_id + count + len(bitmap) - before
        while low < high:
            middle = (low + high) // 2
            absent = middle - after.entry_id - (bitmap.rank(middle) - before)
            low, high = (low, middle) if absent >= count else (middle + 1, high)
        return low

    def entry_ranges(self) -> Iterator[EntryRange]:
        """Yield all ranges, ascending."""
        for ledger_id in self._ids:
            bitmap = self._bitmaps[ledger_id]
            for first in _range_starts(bitmap):
                last = self.range_end(Position(ledger_id, first)).entry_id
                yield EntryRange(ledger_id, first, last)

    def copy(self) -> "PositionRanges":
        """Return an independent set with the same entries."""
        copied = PositionRanges()
        copied._bitmaps = {ledger_id: bitmap.copy() for ledger_id, bitmap in self._bitmaps.items()}
        copied._ids = self._ids.copy()
        copied.count = self.count
        return copied

    def lowest(self, ranges_max: int) -> "PositionRanges":
        """Return at most so many ranges, the lowest: itself if it has no more."""
        if self.count <= ranges_max:
            return self
        kept, left = PositionRanges(), ranges_max
        for ledger_id in self._ids:
            bitmap = self._bitmaps[ledger_id]
            starts = _range_starts(bitmap)
            kept._take(ledger_id, bitmap.copy())
            if len(starts) > left:
                kept._remove(ledger_id, starts[left], ENTRY_ID_END + 1)
                return kept
            left -= len(starts)
        return self

    def dump(self) -> list[tuple[int, bytes]]:
        """Return every ledger with its bitmap in Roaring's portable format."""
        return [(ledger_id, self._bitmaps[ledger_id].serialize()) for ledger_id in self._ids]

    @classmethod
    def load(cls, dumped: Iterable[tuple[int, bytes]]) -> "PositionRanges":
        """Return what `dump` gave; the bytes must be whole."""
        loaded = cls()
        for ledger_id, data in dumped:
            if bitmap := BitMap.deserialize(data):
                loaded._take(ledger_id, bitmap)
        return loaded

    def _take(self, ledger_id: int, bitmap: BitMap) -> None:
        self._bitmaps[ledger_id] = bitmap
        insort(self._ids, ledger_id)
        self.count += len(bitmap)

    def _remove(self, ledger_id: int, start: int, end: int) -> None:
        bitmap = self._bitmaps.get(ledger_id)
        if bitmap is None or end <= start:
            return
        before = len(bitmap)
        bitmap.remove_range(start, end)
        if bitmap:
            self.count -= before - len(bitmap)
        else:
            del self._bitmaps[ledger_id]
            self._ids.remove(ledger_id)
            self.count -= before


def _range_starts(bitmap: BitMap) -> BitMap:
    """Return the members whose predecessor is absent."""
    return bitmap - bitmap.shift(1)
