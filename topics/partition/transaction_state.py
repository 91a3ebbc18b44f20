"""Transaction state: the open and the aborted transactions of one partition.

Rule: a transaction is open from its first batch until its marker is durable; the first offset of
the oldest one holds back the last stable offset. Failed appends are undone, newest first. Aborted
transactions are remembered with their first offset and the offset of their marker.
Must not know: sequences, coordinators, rows. Source: Kafka's ProducerStateManager and
TransactionIndex.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

NONE_OPEN = -1
_NO_COLUMN = array("q")
"""Stays empty."""


class TransactionEnd(NamedTuple):
    """The end of a producer's transaction, as its coordinator has decided it.

    Attributes:
        epoch: the producer's from now on; batches of an older one are rejected.
        coordinator_epoch: of the coordinator; those under an older one decide nothing any more.
    """

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int = 0


class AbortedTransaction(NamedTuple):
    """A transaction whose records are invisible under read_committed.

    Attributes:
        last_offset: of its marker.
        last_stable_offset: when the marker became durable; every transaction that is aborted later
            begins at or after it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class _Ending(NamedTuple):
    """A transaction whose marker is not durable yet."""

    marker_offset: int
    producer_id: int
    first_offset: int
    is_commit: bool


class AbortedIndex:
    """Aborted transactions in the order of their markers; 32 bytes each."""

    __slots__ = ("_first", "_last", "_producers", "_stable")

    def __init__(self) -> None:
        # Most partitions never have one: they share an empty array.
        self._producers = self._first = self._last = self._stable = _NO_COLUMN

    def __len__(self) -> int:
        return len(self._last)

    @property
    def next_free(self) -> int:
        """The offset after the last marker."""
        return self._last[-1] + 1 if self._last else 0

    def add(self, one: AbortedTransaction) -> None:
        """Add the newest one; ignored if it was added before."""
        if self._last and one.last_offset <= self._last[-1]:
            return
        if self._last is _NO_COLUMN:
            self._producers, self._first = array("q"), array("q")
            self._last, self._stable = array("q"), array("q")
        self._producers.append(one.producer_id)
        self._first.append(one.first_offset)
        self._last.append(one.last_offset)
        self._stable.append(one.last_stable_offset)

    def overlapping(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of those with records from start up to end."""
        return [each[:2] for each in self.between(start_offset, end_offset)]

    def between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return those with records from start up to end, in the order of their markers."""
        found = []
        for row in range(bisect_left(self._last, start_offset), len(self._last)):
            first, stable = self._first[row], self._stable[row]
            if first < end_offset:
                producer_id, last = self._producers[row], self._last[row]
                found.append(AbortedTransaction(producer_id, first, last, stable))
            if stable >= end_offset:
                break
        return found

    def remove_before(self, offset: int) -> int:
        """Forget those that end before an offset; return how many."""
        count = bisect_left(self._last, offset)
        if not count:
            return 0
        for column in (self._producers, self._first, self._last, self._stable):
            del column[:count]
        return count


class TransactionState:
    """The transactions of one partition.

    Attributes:
        aborted: those that have ended without a commit.
    """

    __slots__ = ("_ending", "_first_unstable", "_open", "aborted")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._ending: list[_Ending] = []  # an empty deque would take 600 bytes
        self._first_unstable = NONE_OPEN
        self.aborted = AbortedIndex()

    def stable_offset(self, high_watermark: int) -> int:
        """Return the offset up to which every transaction has ended."""
        first = self._first_unstable
        return high_watermark if first == NONE_OPEN else min(first, high_watermark)

    def is_open(self, producer_id: int) -> bool:
        """Whether the producer has a transaction without a marker, durable or pending."""
        return producer_id in self._open

    def open(self) -> Iterator[tuple[int, int]]:
        """Iterate over producer id and first offset of the open ones."""
        return iter(self._open.items())

    def begin(self, producer_id: int, offset: int) -> int:
        """Append a batch of a transaction; return the first offset of the transaction."""
        first_offset = self._open.get(producer_id)
        if first_offset is None:
            first_offset = self._open[producer_id] = offset
            if not NONE_OPEN < self._first_unstable < offset:
                self._first_unstable = offset
        return first_offset

    def end(self, producer_id: int, marker_offset: int, *, is_commit: bool) -> None:
        """Append a marker; without an open transaction it changes nothing."""
        first_offset = self._open.pop(producer_id, NONE_OPEN)
        if first_offset != NONE_OPEN:
            self._ending.append(_Ending(marker_offset, producer_id, first_offset, is_commit))

    def end_without_marker(
        self, producer_id: int, end_offset: int, *, is_commit: bool
    ) -> AbortedTransaction | None:
        """End a transaction in a terminated log, as if a marker followed its end.

        Returns:
            The transaction, if it was open and is aborted by it.
        """
        first_offset = self._open.pop(producer_id, NONE_OPEN)
        self._update_first_unstable()
        if first_offset == NONE_OPEN or is_commit:
            return None
        marker = max(end_offset, self.aborted.next_free)
        stable = self.stable_offset(end_offset)
        aborted = AbortedTransaction(producer_id, first_offset, marker, stable)
        self.aborted.add(aborted)
        return aborted

    def confirm(self, high_watermark: int) -> AbortedTransaction | None:
        """Confirm the log up to an offset; return the transaction that this has aborted."""
        if not self._ending or self._ending[0].marker_offset >= high_watermark:
            return None
        ended = self._ending.pop(0)
        if ended.first_offset == self._first_unstable:
            self._update_first_unstable()
        if ended.is_commit:
            return None
        aborted = AbortedTransaction(
            ended.producer_id,
            ended.first_offset,
            ended.marker_offset,
            self.stable_offset(high_watermark),
        )
        self.aborted.add(aborted)
        return aborted

    def undo(self, producer_id: int, base_offset: int) -> None:
        """Undo the append at an offset, which failed with all later ones."""
        if self._ending and self._ending[-1].marker_offset == base_offset:
            ended = self._ending.pop()
            self._open[producer_id] = ended.first_offset
        elif self._open.get(producer_id) == base_offset:
            del self._open[producer_id]
        self._update_first_unstable()

    def _update_first_unstable(self) -> None:
        firsts = [*self._open.values(), *(each.first_offset for each in self._ending)]
        self._first_unstable = min(firsts, default=NONE_OPEN)
