"""Keyed locks: one lock for each key in use, and no memory for all others.

Rule: a lock exists while a task holds it or waits for it. Tasks get the lock of a key in the order
in which they asked for it.
Must not know: what a key stands for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class _Lock(asyncio.Lock):
    """A lock and the number of tasks that hold it or wait for it."""

    users = 0


class KeyedLocks(Generic[Key]):
    """Locks by key, for one event loop."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: dict[Key, _Lock] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._locks

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def holding(self, key: Key) -> AsyncIterator[None]:
        """Hold the lock of a key during the body."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = _Lock()
        lock.users += 1
        try:
            async with lock:
                yield
        finally:
            lock.users -= 1
            if not lock.users:
                del self._locks[key]
                if not self._locks:
                    self._locks.clear()  # an emptied dict keeps its table

    async def settle(self, is_included: Callable[[Key], bool] = lambda key: True) -> None:
        """Wait until every lock that is held now was released, of the included keys."""
        for key in list(filter(is_included, self._locks)):
            async with self.holding(key):
                pass
