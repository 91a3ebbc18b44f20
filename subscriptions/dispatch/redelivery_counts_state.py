"""Redelivery counts: how often records were delivered before.

Rule: the count of a record grows by one with every redelivery, whichever consumer had it. Two
forms: `RedeliveryCounts` for single records, and `RewindCounts` for a cursor that is rewound, where
everything up to the position that it had reached is redelivered.
Must not know: consumers.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from kledger.ledger import Position

MARKS_MAX = 1_000
"""The highest count of a record when the cursor is rewound."""


class RedeliveryCounts:
    """Counts per record; a record that was delivered once takes no memory."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Position, dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, position: Position, records: int) -> None:
        """Add one to the count of records that will be redelivered."""
        before = self._counts.get(position)
        if before is None:
            self._counts[position] = {1: records}
            return
        after: dict[int, int] = {}
        fresh = records
        for count, mask in before.items():
            fresh &= ~mask
            if mask & ~records:
                after[count] = after.get(count, 0) | mask & ~records
            if mask & records:
                after[count + 1] = after.get(count + 1, 0) | mask & records
        if fresh:
            after[1] = after.get(1, 0) | fresh
        self._counts[position] = after

    def split(self, position: Position, records: int) -> Iterator[tuple[int, int]]:
        """Yield records of an entry in order, as (count, mask) of neighbours with equal counts."""
        known = self._counts.get(position)
        if known is None:
            yield 0, records
            return
        for count, mask in known.items():
            if not records & ~mask:
                yield count, records
                return
        yield from _split_by_count(known, records)

    def forget(self, position: Position, records: int) -> None:
        """Forget records that are acknowledged."""
        known = self._counts.get(position)
        if known is None:
            return
        left = {count: mask & ~records for count, mask in known.items() if mask & ~records}
        if left:
            self._counts[position] = left
        else:
            del self._counts[position]

    def forget_before(self, position: Position) -> None:
        """Forget everything before a position: it is acknowledged."""
        for each in [each for each in self._counts if each < position]:
            del self._counts[each]

    def clear(self) -> None:
        """Forget everything."""
        self._counts.clear()


def _split_by_count(known: dict[int, int], records: int) -> Iterator[tuple[int, int]]:
    """Yield neighbours with equal counts together."""
    run = run_count = 0
    left = records
    while left:
        bit = left & -left
        left ^= bit
        count = next((each for each, mask in known.items() if mask & bit), 0)
        if run and count != run_count:
            yield run_count, run
            run = 0
        run_count = count
        run |= bit
    if run:
        yield run_count, run


class RewindCounts:
    """The positions that a cursor had reached each time it was rewound."""

    __slots__ = ("_marks", "_reached")

    def __init__(self) -> None:
        self._marks: list[Position] = []
        self._reached: Position | None = None

    def reach(self, position: Position) -> None:
        """Note that everything up to a position was delivered."""
        self._reached = position

    def rewind(self) -> None:
        """Add one to the count of everything that was reached."""
        if self._reached is not None:
            insort(self._marks, self._reached)
            del self._marks[:-MARKS_MAX]
            self._reached = None

    def count_of(self, position: Position) -> int:
        """Return how often an entry was delivered before."""
        return len(self._marks) - bisect_left(self._marks, position)

    def forget_before(self, position: Position) -> None:
        """Forget everything before a position: it is acknowledged."""
        del self._marks[: bisect_left(self._marks, position)]

    def clear(self) -> None:
        """Forget everything."""
        self._marks.clear()
        self._reached = None
