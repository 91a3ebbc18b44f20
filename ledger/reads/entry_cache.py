"""Entry cache: the newest entries of all managed ledgers, in memory, for readers of the tail.

Rule: one limit in bytes holds for the store; the oldest entry is evicted first, whichever its
ledger. Buffers are kept as they arrived, without a copy. An entry counts with the memory it really
takes: its objects, and for a view the whole buffer below it, once for all cached views of that
buffer. The cached entries of a ledger are contiguous up to its newest confirmed entry, so they are
never stale and have no gap.
Must not know: readers, writers, storage.
"""

from bisect import bisect_right
from collections import deque
from itertools import accumulate

from kledger.ledger.engine.base import Buffer

_FORGOTTEN_MIN = 1024
"""How many evicted elements a list of buffers, and the order of eviction, may keep before it is
rebuilt; as it is rebuilt only when half of it is evicted, every operation is O(1) on average."""

# Measured as resident memory of 200,000 entries of 70 to 4,000 bytes, CPython 3.11 on x86-64, with
# their elements in the list of buffers and in the order of eviction.
OBJECT_BYTES = 112
"""Memory of an entry beside its bytes: 91 to 113 as `bytearray`, 57 to 72 as `bytes`."""
VIEW_BYTES = 448
"""Memory of a view beside the buffer below it: 412 to 450."""


class CachedLedger:
    """The cached entries of one ledger: `first_entry` and all later ones."""

    __slots__ = (
        "_buffers",
        "_cache",
        "_evicted",
        "_origin",
        "is_closed",
        "is_dropped",
        "ledger_id",
    )

    def __init__(self, cache: "EntryCache", ledger_id: int, next_entry: int) -> None:
        self.ledger_id = ledger_id
        self.is_closed = False
        self.is_dropped = False
        self._cache = cache
        self._buffers: list[Buffer] = []
        self._origin = next_entry
        self._evicted = 0

    @property
    def first_entry(self) -> int:
        """Id of the oldest cached entry, or of the next entry when none is cached."""
        return self._origin + self._evicted

    def __len__(self) -> int:
        return len(self._buffers) - self._evicted

    def append(self, data: Buffer) -> None:
        """Cache the ledger's next entry; this may evict the oldest entries of any ledger."""
        if self.is_dropped:
            return
        cache = self._cache
        if type(data) is memoryview:
            if len(data.obj) == len(data):  # type: ignore[arg-type]  # a buffer of bytes
                data = data.obj  # type: ignore[assignment]  # the view has all of the buffer
                cache.size += len(data) + OBJECT_BYTES
            else:
                cache.retain_owner(data)
        else:
            cache.size += len(data) + OBJECT_BYTES
        self._buffers.append(data)
        cache.order.append(self)
        if cache.size > cache.limit:
            cache.evict()

    def slice(self, first: int, count: int, bytes_max: int) -> list[Buffer] | None:
        """Return up to `count` entries from id `first` on, None if that one is not cached.

        Args:
            first: entry id.
            count: how many entries at most.
            bytes_max: total size at most, -1 = no limit; the first is returned whatever its size.
        """
        start = first - self._origin
        if not self._evicted <= start < len(self._buffers):
            return None
        buffers = self._buffers[start : start + count]
        if bytes_max >= 0 and len(buffers) > 1:
            ends = list(accumulate(map(len, buffers)))
            if ends[-1] > bytes_max:
                del buffers[max(1, bisect_right(ends, bytes_max)) :]
        return buffers

    def evict_oldest(self) -> None:
        """Evict the oldest entry."""
        index = self._evicted
        self._cache.release(self._buffers[index])
        self._buffers[index] = b""
        self._evicted = index = index + 1
        if index >= _FORGOTTEN_MIN and 2 * index >= len(self._buffers):
            self._forget_evicted()

    def drain(self) -> int:
        """Evict all entries and cache no more; return how many were evicted."""
        buffers = self._buffers[self._evicted :]
        for data in buffers:
            self._cache.release(data)
        self.is_dropped = True
        self._evicted = len(self._buffers)
        self._forget_evicted()
        return len(buffers)

    def _forget_evicted(self) -> None:
        del self._buffers[: self._evicted]
        self._origin += self._evicted
        self._evicted = 0


class EntryCache:
    """The cached entries of all ledgers, their size, and the order of eviction."""

    __slots__ = ("_dead_count", "_ledgers", "_owners", "limit", "order", "size")

    def __init__(self, limit: int) -> None:
        """Args: limit: in bytes; 0 caches nothing."""
        self.limit = limit
        self.size = 0
        self.order: deque[CachedLedger] = deque()
        self._dead_count = 0
        self._ledgers: dict[int, CachedLedger] = {}
        self._owners: dict[int, int] = {}
        """How many cached views a buffer has, by its identity; they keep it alive."""

    def __len__(self) -> int:
        return len(self.order) - self._dead_count

    def add_ledger(self, ledger_id: int, next_entry: int = 0) -> CachedLedger:
        """Begin to cache a ledger, whose entries are then appended from `next_entry` on."""
        self.drop(ledger_id)
        cached_ledger = self._ledgers[ledger_id] = CachedLedger(self, ledger_id, next_entry)
        return cached_ledger

    def find_ledger(self, ledger_id: int) -> CachedLedger | None:
        """Return the cached entries of a ledger, None if it is not cached."""
        return self._ledgers.get(ledger_id)

    def close_ledger(self, ledger_id: int) -> None:
        """Note that the ledger gets no more entries: it is removed when all are evicted."""
        cached_ledger = self._ledgers.get(ledger_id)
        if cached_ledger is not None:
            cached_ledger.is_closed = True
            if not cached_ledger:
                self.drop(ledger_id)

    def drop(self, ledger_id: int) -> None:
        """Remove a ledger."""
        cached_ledger = self._ledgers.pop(ledger_id, None)
        if cached_ledger is None:
            return
        self._dead_count += cached_ledger.drain()
        if self._dead_count == len(self.order):
            self.order.clear()
            self._dead_count = 0
        elif self._dead_count > _FORGOTTEN_MIN and 2 * self._dead_count > len(self.order):
            self.order = deque(
                cached_ledger for cached_ledger in self.order if not cached_ledger.is_dropped
            )
            self._dead_count = 0

    def clear(self) -> None:
        """Remove all ledgers."""
        for ledger_id in list(self._ledgers):
            self.drop(ledger_id)

    def evict(self) -> None:
        """Evict the oldest entries until the size is within the limit."""
        while self.size > self.limit:
            cached_ledger = self.order.popleft()  # drop() may have replaced `order`
            if cached_ledger.is_dropped:
                self._dead_count -= 1
            else:
                cached_ledger.evict_oldest()
                if cached_ledger.is_closed and not cached_ledger:
                    self.drop(cached_ledger.ledger_id)

    # For CachedLedger

    def retain_owner(self, view: memoryview) -> None:
        """Count a view of a part of a buffer, and with its first view the buffer."""
        owner = view.obj
        views = self._owners.get(id(owner), 0)
        self._owners[id(owner)] = views + 1
        self.size += VIEW_BYTES
        if not views:
            self.size += len(owner)  # type: ignore[arg-type]  # a buffer of bytes

    def release(self, data: Buffer) -> None:
        """Count an entry as evicted."""
        if type(data) is not memoryview:
            self.size -= len(data) + OBJECT_BYTES
            return
        self.size -= VIEW_BYTES
        owner = data.obj
        views = self._owners.pop(id(owner)) - 1
        if views:
            self._owners[id(owner)] = views
        else:
            self.size -= len(owner)  # type: ignore[arg-type]  # a buffer of bytes
