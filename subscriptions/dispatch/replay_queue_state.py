"""Replay queues: records that will be read again and delivered, lowest position first.

Rule: records stay in the queue until they are delivered or acknowledged, so that a read that fails
or is outdated loses nothing. `ReplayQueue` is that of shared subscriptions; `KeyHashQueues` that of
key_shared ones, where records of one key hash keep their order.
Must not know: consumers.
"""

from bisect import bisect_left, insort

from kledger.ledger import Position

INSERTED_SINGLY_MAX = 32
"""Up to so many new positions are inserted one by one; with more, all are sorted."""


class ReplayQueue:
    """Record masks by position; `_order` may have positions twice or that were removed."""

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
        """Return which records of an entry are in the queue."""
        return self._records.get(position, 0)

    def add(self, position: Position, records: int) -> None:
        """Add records."""
        present = self._records.get(position, 0)
        self._records[position] = present | records
        if not present:
            self._unsorted.append(position)

    def remove(self, position: Position, records: int) -> None:
        """Remove records; those that are not in the queue are ignored."""
        left = self._records.get(position, 0) & ~records
        if left:
            self._records[position] = left
        else:
            self._records.pop(position, None)

    def remove_before(self, position: Position) -> None:
        """Remove everything before a position."""
        for each in [each for each in self._records if each < position]:
            del self._records[each]

    def first(self, count: int, records_max: int) -> list[Position]:
        """Return the lowest positions: up to `count`, or up to `records_max` records."""
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
        """Remove everything."""
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
    """The queued records of one key hash, lowest position first."""

    __slots__ = ("order", "records")

    def __init__(self) -> None:
        self.order: list[Position] = []
        self.records: dict[Position, int] = {}

    def add(self, position: Position, records: int) -> bool:
        """Add records; return whether no record of that entry was in the queue."""
        present = self.records.get(position, 0)
        self.records[position] = present | records
        if not present:
            insort(self.order, position)
        return not present

    def remove(self, position: Position, records: int) -> bool:
        """Remove records; return whether these were the last ones of that entry."""
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
    """Record masks by key hash and position: of each key hash only the first may be delivered.

    Attributes:
        mask_count: how many pairs of key hash and entry are queued.
    """

    __slots__ = ("mask_count", "queues")

    def __init__(self) -> None:
        self.queues: dict[int, KeyHashQueue] = {}
        self.mask_count = 0

    def __contains__(self, key_hash: int) -> bool:
        return key_hash in self.queues

    def add(self, key_hash: int, position: Position, records: int) -> None:
        """Add records."""
        queue = self.queues.get(key_hash)
        if queue is None:
            queue = self.queues[key_hash] = KeyHashQueue()
        self.mask_count += queue.add(position, records)

    def remove(self, key_hash: int, position: Position, records: int) -> None:
        """Remove records; those that are not in the queue are ignored."""
        queue = self.queues.get(key_hash)
        if queue is not None:
            self.mask_count -= queue.remove(position, records)
            if not queue.order:
                del self.queues[key_hash]

    def records_of(self, key_hash: int, position: Position) -> int:
        """Return which records of an entry are queued for a key hash."""
        queue = self.queues.get(key_hash)
        return queue.records.get(position, 0) if queue is not None else 0

    def is_first(self, key_hash: int, position: Position) -> bool:
        """Whether no record of a key hash is queued before a position."""
        queue = self.queues.get(key_hash)
        return queue is None or queue.order[0] >= position

    def clear(self) -> None:
        """Remove everything."""
        self.queues.clear()
        self.mask_count = 0
