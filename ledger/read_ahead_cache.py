"""Read-ahead cache: ranges of entries that were read from the storage and will be wanted again.

Rule: one limit in bytes holds for all ledgers, reserved room included. Used ranges are evicted
first, least recently touched first; a range that was read ahead and is not used up is evicted only
for another such range. Ranges do not overlap, because callers read up to `next_first` only.
Must not know: storage, readers, time.
"""

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter
from sys import maxsize
from typing import TypeAlias

from kledger.ledger.engine.base import Buffer

RangeKey: TypeAlias = tuple[int, int]

_first = attrgetter("first")


class CachedRange:
    """Consecutive entries of a ledger: ids `first` to `end` (exclusive)."""

    __slots__ = ("buffers", "end", "first", "ledger_id", "size")

    def __init__(self, ledger_id: int, first: int, buffers: Sequence[Buffer]) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.end = first + len(buffers)
        self.buffers = buffers
        self.size = sum(map(len, buffers))

    @property
    def key(self) -> RangeKey:
        """Ledger and first entry."""
        return self.ledger_id, self.first


class ReadAheadCache:
    """Cached ranges of all ledgers.

    `expected_bytes` counts the ranges that are not used up and the reserved room, `used_bytes` the
    other ranges; their sum stays within `limit`.
    """

    def __init__(self, limit: int) -> None:
        """Args: limit: in bytes; 0 caches nothing."""
        self.limit = limit
        self.expected_bytes = 0
        self.used_bytes = 0
        self._expected: OrderedDict[RangeKey, CachedRange] = OrderedDict()
        self._used: OrderedDict[RangeKey, CachedRange] = OrderedDict()
        self._ledgers: dict[int, list[CachedRange]] = {}

    def find(self, ledger_id: int, entry_id: int) -> CachedRange | None:
        """Return the range that has an entry."""
        ranges = self._ledgers.get(ledger_id)
        if ranges is None:
            return None
        at = bisect_right(ranges, entry_id, key=_first) - 1
        return ranges[at] if at >= 0 and entry_id < ranges[at].end else None

    def touch(self, cached: CachedRange, upto: int, *, is_kept: bool = True) -> None:
        """Note that a reader took the entries before `upto`.

        A range whose last entry was taken is used up: it stays until it is evicted, or is removed
        at once without `is_kept`.
        """
        key = cached.key
        if key in self._used:
            self._used.move_to_end(key)
        elif upto < cached.end:
            self._expected.move_to_end(key)
        elif not is_kept:
            self._remove(cached)
        else:
            self._used[key] = self._expected.pop(key)
            self.expected_bytes -= cached.size
            self.used_bytes += cached.size

    def next_first(self, ledger_id: int, entry_id: int) -> int:
        """Return the first entry of the next range after an entry; `sys.maxsize` without one."""
        ranges = self._ledgers.get(ledger_id, ())
        at = bisect_right(ranges, entry_id, key=_first)
        return ranges[at].first if at < len(ranges) else maxsize

    def reserve(self, size: int) -> bool:
        """Reserve room for a range that is read ahead; False if it is too large."""
        if size > self.limit:
            return False
        self.expected_bytes += size
        while self.expected_bytes + self.used_bytes > self.limit:
            if not self._used and not self._expected:
                self.expected_bytes -= size
                return False
            self._remove(next(iter((self._used or self._expected).values())))
        return True

    def release(self, size: int) -> None:
        """Return reserved room."""
        self.expected_bytes -= size

    def put(self, cached: CachedRange, *, is_used: bool) -> None:
        """Cache a range, unless there is no room or it overlaps a cached one.

        This evicts used ranges only: `reserve` has made the room for the others.
        """
        end = self.next_first(cached.ledger_id, cached.first)
        if self.find(cached.ledger_id, cached.first) or cached.end > end:
            return
        if cached.size > self.limit - self.expected_bytes:
            return
        while self.expected_bytes + self.used_bytes + cached.size > self.limit:
            self._remove(next(iter(self._used.values())))
        insort(self._ledgers.setdefault(cached.ledger_id, []), cached, key=_first)
        if is_used:
            self._used[cached.key] = cached
            self.used_bytes += cached.size
        else:
            self._expected[cached.key] = cached
            self.expected_bytes += cached.size

    def drop(self, ledger_id: int) -> None:
        """Forget everything of a ledger."""
        for cached in list(self._ledgers.get(ledger_id, ())):
            self._remove(cached)

    def _remove(self, cached: CachedRange) -> None:
        key = cached.key
        if self._used.pop(key, None) is not None:
            self.used_bytes -= cached.size
        else:
            del self._expected[key]
            self.expected_bytes -= cached.size
        ranges = self._ledgers[cached.ledger_id]
        del ranges[bisect_right(ranges, cached.first, key=_first) - 1]
        if not ranges:
            del self._ledgers[cached.ledger_id]
