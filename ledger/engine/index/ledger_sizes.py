"""Ledger sizes: a number of bytes for each ledger, of which there may be very many.

Rule: what changes now is in a small dict, everything else in two arrays, 16 bytes a ledger. No
object is kept for a ledger that has come to rest: it would lie among those of the partition that
was used then, and keep their memory from going back to the system.
Must not know: files, what is counted.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, MutableMapping

CHANGING_MAX = 128
"""So many ledgers change their sizes at the cost of a dict."""


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
        """The row of a ledger that came to rest, -1 without one."""
        at = bisect_left(self._ids, ledger_id)
        return at if at < len(self._ids) and self._ids[at] == ledger_id else -1

    def _settle(self) -> None:
        """Move what has changed into the arrays; new ledgers are mostly the newest."""
        ids, sizes = self._ids, self._sizes
        for ledger_id, size in sorted(self._changing.items()):
            at = bisect_left(ids, ledger_id)
            if at < len(ids) and ids[at] == ledger_id:
                sizes[at] = size
            else:
                ids.insert(at, ledger_id)
                sizes.insert(at, size)
        self._changing.clear()
