"""Index rows: the stored intervals of a partition, found one by one. A shell.

Rule: a row is true without its neighbours; entries that no row describes are the caller's to read.
A binary search within a ledger reads one row per step and needs no memory. Rows may come from a
disk, so searches and walks read them in a thread.
Must not know: entries, offsets and times.
"""

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from kledger.ledger import LedgerStore
from kledger.topics.keys import PartitionKeys, ids_after
from kledger.topics.partition import records
from kledger.topics.partition.offset_index import Interval

WALK_ROWS = 16
"""Rows that a walk reads at once."""


class Neighbours(NamedTuple):
    """The last interval before the target of a search and the first at or after it, if any."""

    before: Interval | None
    after: Interval | None


class IndexRows:
    """The rows of one partition's intervals."""

    def __init__(self, store: LedgerStore, keys: PartitionKeys) -> None:
        self._store = store
        self._keys = keys

    async def around(
        self, ledger_id: int, end_entry: int, is_before: Callable[[Interval], bool]
    ) -> Neighbours:
        """Find where `is_before`, true for the first intervals only, becomes false.

        Args:
            ledger_id: the ledger.
            end_entry: the entry after its last one.
            is_before: whether an interval lies before the target; called in a
                thread.

        Raises:
            LedgerError: a row cannot be read.
        """
        return await self._store.run_blocking(self.search, ledger_id, end_entry, is_before)

    def search(
        self, ledger_id: int, end_entry: int, is_before: Callable[[Interval], bool]
    ) -> Neighbours:
        """Do what `around` does; blocks, so it is for a thread."""
        before = after = None
        low, high = 0, end_entry  # where the target may begin
        while low < high:
            middle = (low + high) // 2
            row = self.last_from(ledger_id, middle)
            if row is None or row.first_entry < low:
                low = middle + 1
            elif is_before(row):
                before, low = row, max(row.end_entry, middle + 1)
            else:
                after, high = row, row.first_entry
        return Neighbours(before, after)

    def last_from(self, ledger_id: int, entry_id: int) -> Interval | None:
        """The last interval that begins at an entry or before it."""
        start = self._keys.ledger_intervals(ledger_id)
        end = self._keys.interval(ledger_id, entry_id + 1)
        rows = self._store.scan_rows_between(start, end, reverse=True, limit=1)
        return self._decode(ledger_id, *rows[0]) if rows else None

    async def walk(self, ledger_id: int, first_entry: int) -> AsyncIterator[Interval]:
        """The intervals that begin at an entry or after it, in order."""
        while True:
            found = await self._store.run_blocking(self._next_rows, ledger_id, first_entry)
            for row in found:
                yield row
            if len(found) < WALK_ROWS:
                return
            first_entry = found[-1].first_entry + 1

    def _next_rows(self, ledger_id: int, first_entry: int) -> list[Interval]:
        start = self._keys.interval(ledger_id, first_entry)
        end = self._keys.ledger_intervals(ledger_id + 1)
        rows = self._store.scan_rows_between(start, end, limit=WALK_ROWS)
        return [self._decode(ledger_id, *row) for row in rows]

    def _decode(self, ledger_id: int, key: bytes, row: bytes) -> Interval:
        (first_entry,) = ids_after(key, self._keys.ledger_intervals(ledger_id))
        return records.decode_interval(first_entry, row)
