"""Piece shelf: what was read of the storage and may be wanted again, by ledger and entry.

Rule: one limit in bytes for all ledgers, room that was reserved included. What everybody has taken
goes first, the longest untouched before the rest; a piece that somebody will come for goes only for
another such piece. Pieces do not overlap as long as who fills the shelf reads up to `next_first`.
Must not know: storage, who reads, when.
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
    """Entries of a ledger that follow one another: ids `first` to `end`, without that."""

    __slots__ = ("buffers", "end", "first", "ledger_id", "size")

    def __init__(self, ledger_id: int, first: int, buffers: Sequence[Buffer]) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.end = first + len(buffers)
        self.buffers = buffers
        self.size = sum(map(len, buffers))

    @property
    def key(self) -> RangeKey:
        """Where it begins."""
        return self.ledger_id, self.first


class ReadAheadCache:
    """Pieces of all ledgers.

    `expected_bytes` counts the pieces that nobody took to their end and the room reserved for
    those on their way, `used_bytes` the others; together they stay within `limit`.
    """

    def __init__(self, limit: int) -> None:
        """Args: limit: bytes; 0 keeps nothing."""
        self.limit = limit
        self.expected_bytes = 0
        self.used_bytes = 0
        self._expected: OrderedDict[RangeKey, CachedRange] = OrderedDict()
        self._used: OrderedDict[RangeKey, CachedRange] = OrderedDict()
        self._ledgers: dict[int, list[CachedRange]] = {}

    def find(self, ledger_id: int, entry_id: int) -> CachedRange | None:
        """Return the piece with an entry."""
        ranges = self._ledgers.get(ledger_id)
        if ranges is None:
            return None
        at = bisect_right(ranges, entry_id, key=_first) - 1
        return ranges[at] if at >= 0 and entry_id < ranges[at].end else None

    def touch(self, cached: CachedRange, upto: int, *, is_kept: bool = True) -> None:
        """Note that somebody took entries before `upto`.

        With the last of them the piece is used, and goes at once if it is not to be kept.
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
        """Return where the nearest piece behind an entry begins; beyond all ids without one."""
        ranges = self._ledgers.get(ledger_id, ())
        at = bisect_right(ranges, entry_id, key=_first)
        return ranges[at].first if at < len(ranges) else maxsize

    def reserve(self, size: int) -> bool:
        """Make room for a piece that somebody will come for; False when it is too large."""
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
        """Give reserved room back."""
        self.expected_bytes -= size

    def put(self, cached: CachedRange, *, is_used: bool) -> None:
        """Keep a piece, unless there is no room or something of it is there already.

        Only used ones go for it: room for others is made when it is reserved.
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
