"""Outbox: the items that wait to be written to a stream.

Rule: items leave in order, as many as fit into one message, at least one. `put` never waits; its
callers limit what they put.
Must not know: the items, the stream.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from kledger.runtime.signal import Signal

Item = TypeVar("Item")

ITEM_BYTES = 64
"""Added to the size of every item, so that many small items count, too."""


class Outbox(Generic[Item]):
    """A queue for one writer."""

    def __init__(self, message_bytes_goal: int) -> None:
        self._message_bytes_goal = message_bytes_goal
        self._items: deque[tuple[Item, int]] = deque()
        self._changed = Signal()
        self._is_finished = False
        self.waiting_bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item, data_bytes: int = 0) -> None:
        """Add an item; nothing when the outbox is finished."""
        if self._is_finished:
            return
        size = data_bytes + ITEM_BYTES
        self._items.append((item, size))
        self.waiting_bytes += size
        self._changed.notify()

    def replace_last(self, item: Item, is_replaced: Callable[[Item], bool]) -> None:
        """Add an item without data, in place of the last one if that is of the kind."""
        if self._items and is_replaced(self._items[-1][0]):
            self._items[-1] = (item, ITEM_BYTES)
        else:
            self.put(item)

    def discard(self, is_unwanted: Callable[[Item], bool]) -> list[Item]:
        """Remove unwanted items; return them in their order."""
        removed = [item for item, _ in self._items if is_unwanted(item)]
        if removed:
            self._items = deque(each for each in self._items if not is_unwanted(each[0]))
            self.waiting_bytes = sum(size for _, size in self._items)
        return removed

    def finish(self) -> None:
        """Ignore further items; those already here can still be taken."""
        self._is_finished = True
        self._changed.notify()

    async def take(self) -> list[Item]:
        """Wait for items and remove those of one message; empty after `finish`."""
        while not self._items and not self._is_finished:
            await self._changed.wait()
        taken: list[Item] = []
        taken_bytes = 0
        while self._items and (
            not taken or taken_bytes + self._items[0][1] <= self._message_bytes_goal
        ):
            item, size = self._items.popleft()
            taken.append(item)
            taken_bytes += size
        self.waiting_bytes -= taken_bytes
        return taken
