"""Outbox: what waits to be written to a stream.

Rule: items leave in the order in which they came, as many as fit one message, at least one. Putting
one in never waits; whoever puts them in looks at `waiting_bytes` and keeps them few.
Must not know: what an item is, and what it is written to.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from kledger.runtime.signal import Signal

Item = TypeVar("Item")

ITEM_BYTES = 64
"""What an item counts beside its data, so that many small ones count, too."""


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

    def discard(self, is_unwanted: Callable[[Item], bool]) -> list[Item]:
        """Remove items that need not be written any more; return them in their order."""
        removed = [item for item, _ in self._items if is_unwanted(item)]
        if removed:
            self._items = deque(each for each in self._items if not is_unwanted(each[0]))
            self.waiting_bytes = sum(size for _, size in self._items)
        return removed

    def finish(self) -> None:
        """Take nothing more; what is there can still be written."""
        self._is_finished = True
        self._changed.notify()

    async def take(self) -> list[Item]:
        """Wait for items and remove one message of them; empty when there will be none."""
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
