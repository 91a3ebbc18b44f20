"""Delayed state: records that wait for their time.

Rule: none leaves before its time, and in the order of their times all do. They are found again by
reading: nothing of this outlives a restart or the last consumer, and nothing is lost with it.
Must not know: clocks, consumers; what is delayed is with nobody.
"""

import heapq

from kledger.ledger import Position
from kledger.subscriptions.entry_view import RecordsByKeyHash


class DelayedState:
    """Entries of one record each."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, Position, RecordsByKeyHash]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_due_ms(self) -> int | None:
        """When the first one is due."""
        return self._heap[0][0] if self._heap else None

    def add(self, due_ms: int, position: Position, key_hashes: RecordsByKeyHash = ()) -> None:
        """Keep a record until its time; `key_hashes` goes with it."""
        heapq.heappush(self._heap, (due_ms, position, key_hashes))

    def pop_due(self, now_ms: int) -> list[tuple[Position, RecordsByKeyHash]]:
        """Take out what is due."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, position, key_hashes = heapq.heappop(self._heap)
            due.append((position, key_hashes))
        return due

    def forget_before(self, position: Position) -> None:
        """Nothing before a position is owed any more."""
        kept = [each for each in self._heap if each[1] >= position]
        if len(kept) < len(self._heap):
            self._heap = kept
            heapq.heapify(kept)

    def clear(self) -> None:
        """Forget all of them."""
        self._heap.clear()
