"""SendWindow: limits the messages and bytes of a producer that are in flight.

Rule: first come, first served; no item overtakes a queued one.
Must not know: what the items are.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")

PENDING_BYTES_MAX = 64 << 20
"""Limit of a producer's bytes in flight, exceeded by at most one message."""


class SendWindow(Generic[Item]):
    """Counts the items and bytes in flight, and queues the items that do not fit yet."""

    __slots__ = ("_bytes", "_bytes_max", "_count", "_count_max", "_waiting")

    def __init__(self, count_max: int, bytes_max: int = PENDING_BYTES_MAX) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = self._bytes = 0
        self._waiting: deque[tuple[Item, int]] = deque()

    def __str__(self) -> str:
        return f"{self._count} of {self._count_max} messages and {self._bytes} bytes"

    @property
    def waiting(self) -> Iterator[Item]:
        """The queued items."""
        return (item for item, _ in self._waiting)

    def enter(self, item: Item, size: int) -> bool:
        """Return True if the item may leave now; otherwise queue it until `leave` returns it."""
        if self._waiting or not self._has_room:
            self._waiting.append((item, size))
            return False
        self._count += 1
        self._bytes += size
        return True

    def try_enter(self, size: int) -> bool:
        """Count an item that leaves now, or return False if the window is full."""
        if self._waiting or self._count >= self._count_max or self._bytes >= self._bytes_max:
            return False
        self._count += 1
        self._bytes += size
        return True

    def leave(self, count: int, size: int) -> list[Item]:
        """Remove finished items; count and return the queued items that may leave now."""
        self._count -= count
        self._bytes -= size
        assert self._count >= 0, f"{-self._count} items left that had not come"
        assert self._bytes >= 0, f"{-self._bytes} bytes left that had not come"
        admitted = []
        while self._waiting and self._has_room:
            item, item_size = self._waiting.popleft()
            self._count += 1
            self._bytes += item_size
            admitted.append(item)
        return admitted

    @property
    def _has_room(self) -> bool:
        return self._count < self._count_max and self._bytes < self._bytes_max
