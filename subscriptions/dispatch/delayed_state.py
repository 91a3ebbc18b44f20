"""Delayed state: records that are not to be delivered before a time.

Rule: records become due in the order of their times. The state lives in memory until a restart, or
until the last consumer leaves; the records are unacknowledged, and are found again by reading.
Must not know: clocks, consumers.
"""

import heapq

from kledger.ledger import Position
from kledger.subscriptions.entry_view import RecordsByKeyHash


class DelayedState:
    """Delayed entries of one record each."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, Position, RecordsByKeyHash]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_due_ms(self) -> int | None:
        """The time at which the first entry is due; None: there is none."""
        return self._heap[0][0] if self._heap else None

    def add(self, due_ms: int, position: Position, key_hashes: RecordsByKeyHash = ()) -> None:
        """Add an entry; `key_hashes` is returned with it when it is due."""
        heapq.heappush(self._heap, (due_ms, position, key_hashes))

    def pop_due(self, now_ms: int) -> list[tuple[Position, RecordsByKeyHash]]:
        """Remove and return the entries that are due, in the order of their times."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, position, key_hashes = heapq.heappop(self._heap)
            due.append((position, key_hashes))
        return due

    def forget_before(self, position: Position) -> None:
        """Remove all before a position: it is acknowledged."""
        kept = [each for each in self._heap if each[1] >= position]
        if len(kept) < len(self._heap):
            self._heap = kept
            heapq.heapify(kept)

    def clear(self) -> None:
        """Remove all."""
        self._heap.clear()
