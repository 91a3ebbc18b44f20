"""Keyed locks: one lock for each key in use, and no memory for all others.

Rule: a lock exists while a task holds it or waits for it. Tasks get the lock of a key in the order
in which they asked for it.
Must not know: the meaning of keys.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class _Lock(asyncio.Lock):
    """A lock and the number of tasks that hold it or wait for it."""

    users = 0


class _LockUse(Generic[Key]):
    """One use of a lock; a class, as it costs half of what a generator does."""

    __slots__ = ("_key", "_lock", "_locks")

    def __init__(self, locks: dict[Key, _Lock], key: Key) -> None:
        self._locks = locks
        self._key = key

    async def __aenter__(self) -> None:
        lock = self._locks.get(self._key)
        if lock is None:
            lock = self._locks[self._key] = _Lock()
        self._lock = lock
        lock.users += 1
        try:
            await lock.acquire()
        except BaseException:
            self._drop()
            raise

    async def __aexit__(self, *exception: object) -> None:
        self._lock.release()
        self._drop()

    def _drop(self) -> None:
        self._lock.users -= 1
        if not self._lock.users:
            del self._locks[self._key]
            if not self._locks:
                self._locks.clear()  # an emptied dict keeps its table


class KeyedLocks(Generic[Key]):
    """Locks by key, for one event loop."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: dict[Key, _Lock] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._locks

    def __len__(self) -> int:
        return len(self._locks)

    def holding(self, key: Key) -> "_LockUse[Key]":
        """Return a context that holds the lock of a key during the body."""
        return _LockUse(self._locks, key)

    async def settle(self, is_included: Callable[[Key], bool] = lambda key: True) -> None:
        """Wait until every lock that is held now was released, of the included keys."""
        for key in list(filter(is_included, self._locks)):
            async with self.holding(key):
                pass
