"""Replay queue state: records that will be handed out again, lowest position first.

Rule: looking takes nothing out: a piece stays until it was handed out or acknowledged, so that a
read that fails or comes too late loses nothing.
Must not know: consumers, keys.
"""

from bisect import bisect_left, insort

from kledger.ledger import Position

INSERTED_SINGLY_MAX = 32
"""So many new positions are put in their places one by one; more are sorted in."""


class ReplayQueue:
    """Pieces by position. `_order` may have positions that are out, or twice: passed over."""

    __slots__ = ("_order", "_records", "_unsorted")

    def __init__(self) -> None:
        self._records: dict[Position, int] = {}
        self._order: list[Position] = []
        self._unsorted: list[Position] = []

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, position: Position) -> bool:
        return position in self._records

    def records_of(self, position: Position) -> int:
        """Return which records of an entry are here."""
        return self._records.get(position, 0)

    def add(self, position: Position, records: int) -> None:
        """Put records in."""
        present = self._records.get(position, 0)
        self._records[position] = present | records
        if not present:
            self._unsorted.append(position)

    def remove(self, position: Position, records: int) -> None:
        """Take records out; those that are not here are passed over."""
        left = self._records.get(position, 0) & ~records
        if left:
            self._records[position] = left
        else:
            self._records.pop(position, None)

    def remove_before(self, position: Position) -> None:
        """Take out everything before a position."""
        for each in [each for each in self._records if each < position]:
            del self._records[each]

    def first(self, count: int, records_max: int) -> list[Position]:
        """Return the lowest positions: at most `count`, and no more when the records suffice."""
        self._sort()
        found: list[Position] = []
        seen = 0
        for position in self._order:
            seen += 1
            records = self._records.get(position)
            if records is None or (found and found[-1] == position):
                continue
            found.append(position)
            records_max -= records.bit_count()
            if len(found) >= count or records_max <= 0:
                break
        if seen > 2 * len(found):
            self._order[:seen] = found
        return found

    def clear(self) -> None:
        """Take everything out."""
        self._records.clear()
        self._order.clear()
        self._unsorted.clear()

    def _sort(self) -> None:
        fresh, self._unsorted = self._unsorted, []
        if len(fresh) <= INSERTED_SINGLY_MAX:
            for position in fresh:
                insort(self._order, position)
        else:
            self._order += fresh
            self._order.sort()


class KeyHashQueue:
    """What waits of one slot, lowest position first."""

    __slots__ = ("order", "records")

    def __init__(self) -> None:
        self.order: list[Position] = []
        self.records: dict[Position, int] = {}

    def add(self, position: Position, records: int) -> bool:
        """Put records in; tell whether nothing of that entry was here."""
        present = self.records.get(position, 0)
        self.records[position] = present | records
        if not present:
            insort(self.order, position)
        return not present

    def remove(self, position: Position, records: int) -> bool:
        """Take records out; tell whether nothing of that entry is left that was here."""
        present = self.records.get(position, 0)
        if not present:
            return False
        if present & ~records:
            self.records[position] = present & ~records
            return False
        del self.records[position]
        del self.order[bisect_left(self.order, position)]
        return True


class KeyHashQueues:
    """Pieces by slot and position: of each slot only the first may be handed out.

    Attributes:
        piece_count: how many pairs of slot and entry wait.
    """

    __slots__ = ("piece_count", "queues")

    def __init__(self) -> None:
        self.queues: dict[int, KeyHashQueue] = {}
        self.piece_count = 0

    def __contains__(self, key_hash: int) -> bool:
        return key_hash in self.queues

    def add(self, key_hash: int, position: Position, records: int) -> None:
        """Put records in."""
        line = self.queues.get(key_hash)
        if line is None:
            line = self.queues[key_hash] = KeyHashQueue()
        self.piece_count += line.add(position, records)

    def remove(self, key_hash: int, position: Position, records: int) -> None:
        """Take records out; those that are not here are passed over."""
        line = self.queues.get(key_hash)
        if line is not None:
            self.piece_count -= line.remove(position, records)
            if not line.order:
                del self.queues[key_hash]

    def records_of(self, key_hash: int, position: Position) -> int:
        """Return which records of an entry wait."""
        line = self.queues.get(key_hash)
        return line.records.get(position, 0) if line is not None else 0

    def is_first(self, key_hash: int, position: Position) -> bool:
        """Tell whether nothing of the slot waits before a position."""
        line = self.queues.get(key_hash)
        return line is None or line.order[0] >= position

    def clear(self) -> None:
        """Take everything out."""
        self.queues.clear()
        self.piece_count = 0
