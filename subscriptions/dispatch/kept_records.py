"""Kept records: which records of compacted entries a dispatcher delivers.

Rule: records that a compaction has removed are acknowledged when their entry is read, so that they
count neither as permits nor as backlog, and the last of the others acknowledges the entry. So are
records that remove their key (no value, or an empty one), as long as this dispatcher cannot have
delivered an older value of it: a compacted ledger has one record of a key, so it is as long as the
same one is read that was there when the position was set.
Must not know: consumers, readers.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from kledger.ledger import Cursor, Entry, EntryPart, LedgerError
from kledger.subscriptions.entry_view import (
    index_count,
    indexes_of,
    kept_records,
    kept_scan_cost,
)

ScanLong: TypeAlias = Callable[[Sequence[Entry], bool], Coroutine[Any, Any, Sequence[int]]]
"""Returns `kept_records` of entries that are too large for the event loop."""


class KeptRecords:
    """One per dispatcher of a cursor that reads compacted."""

    def __init__(
        self,
        cursor: Cursor,
        *,
        fits_in_tick: Callable[[int], bool],
        scan_long: ScanLong,
        is_continued: bool,
    ) -> None:
        """Make one.

        Args:
            cursor: of the subscription.
            fits_in_tick: whether so many bytes may be scanned on the event loop now.
            scan_long: scans others elsewhere.
            is_continued: whether the consumer has got what lies before the position.
        """
        self._cursor = cursor
        self._fits_in_tick = fits_in_tick
        self._scan_long = scan_long
        self._is_first_known = is_continued
        self._first_id: int | None = None
        """The compacted ledger that was read first since the position was set; None: the log."""

    def position_set(self) -> None:
        """Note that the position was set: what was delivered before does not count."""
        self._is_first_known = False

    async def without_removed(self, entries: list[Entry], revision: int) -> list[Entry]:
        """Acknowledge the records of a read that are not delivered; return the other entries.

        Args:
            entries: of the last read of the cursor.
            revision: that it was read under; if it is outdated, nothing is left.
        """
        compacted_id = self._cursor.compacted_id
        if not self._is_first_known:
            self._is_first_known, self._first_id = True, compacted_id
        if compacted_id is None:
            return entries
        kept = await self._kept(entries, leaves_removals=compacted_id != self._first_id)
        parts = []
        for (position, data), records in zip(entries, kept, strict=True):
            size = index_count(data)
            if removed := (1 << size) - 1 & ~records:
                parts.append(EntryPart(position, indexes_of(removed) if records else None, size))
        if parts:
            with suppress(LedgerError):
                if self._cursor.acknowledge_nowait(parts, revision=revision):
                    return [each for each, records in zip(entries, kept, strict=True) if records]
            return []  # what was read is outdated
        return entries

    async def _kept(self, entries: list[Entry], *, leaves_removals: bool) -> list[int]:
        """Return for each entry the records that are delivered."""
        found: dict[int, int] = {}
        long: list[int] = []
        for row, (_, data) in enumerate(entries):
            cost = kept_scan_cost(data, leaves_removals)
            if self._fits_in_tick(cost):
                found[row] = kept_records(data, leaves_removals)
            else:
                long.append(row)
        if long:
            scanned = await self._scan_long([entries[row] for row in long], leaves_removals)
            found.update(zip(long, scanned, strict=True))
        return [found[row] for row in range(len(entries))]
