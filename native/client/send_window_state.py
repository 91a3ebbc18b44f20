"""How much of a producer may be under way at once.

Rule: who comes first goes first; nobody overtakes one that waits for room.
Must not know: what the items are.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")

PENDING_BYTES_MAX = 64 << 20
"""Bytes that one producer has under way, give or take one message."""


class SendWindow(Generic[Item]):
    """Counts items and bytes, and keeps those in order that do not fit yet."""

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
        """Those that wait for room."""
        return (item for item, _ in self._waiting)

    def enter(self, item: Item, size: int) -> bool:
        """Return whether the item may go now; otherwise `leave` will return it."""
        if self._waiting or not self._has_room:
            self._waiting.append((item, size))
            return False
        self._count += 1
        self._bytes += size
        return True

    def try_enter(self, size: int) -> bool:
        """Count an item that goes now, or return that there is no room for it."""
        if self._waiting or not self._has_room:
            return False
        self._count += 1
        self._bytes += size
        return True

    def leave(self, count: int, size: int) -> list[Item]:
        """Take out items that are done; return those that may go now, and count them."""
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
