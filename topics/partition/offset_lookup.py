"""Offset lookup: finds the entry of an offset, and the record of a time, in the stored log.

Rule: the offset index narrows the search, the headers and records that are read decide. The result
for a time is the first record in offset order that is not older, with its own timestamp, also
inside a compressed batch and when times are out of order. The max timestamp of a header is trusted
even if it is smaller than those of its records. Reading does not grow with the log: a search reads
one interval of entries and opens one batch.
Must not know: appends, requests.
"""

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, Protocol, TypeVarTuple

from kledger.batches.header import BatchHeader, read_header
from kledger.batches.pacing import Pause, no_pause
from kledger.batches.reader import RecordTime
from kledger.batches.time_search import first_since, newest_since
from kledger.ledger import (
    LATEST,
    AlreadyClosed,
    Buffer,
    Entry,
    LedgerStore,
    Position,
    StorageFailed,
)
from kledger.runtime.blocking import PoolClosed
from kledger.runtime.compute_process import ComputeProcessDied
from kledger.topics.partition.index_rows import IndexRows
from kledger.topics.partition.offset_index import TIMESTAMP_NONE, UNKNOWN, OffsetIndex

Arguments = TypeVarTuple("Arguments")

SEARCH_ENTRIES = 256
SEARCH_BYTES = 1 << 20


class TimestampedOffset(NamedTuple):
    """Where a record is, and its time."""

    timestamp: int
    offset: int


class SearchRange(NamedTuple):
    """Entries to search, and the largest time that they may have."""

    ledger_id: int
    first_entry: int
    end_entry: int
    max_timestamp: int


class SearchedEntries(Protocol):
    """The entries that are searched: a managed ledger, or its compacted part."""

    @property
    def first_position(self) -> Position:
        """The position before the first entry."""
        ...

    def next_valid_position(self, position: Position) -> Position:
        """Return the next position that exists, or the next to be written."""
        ...

    def number_of_entries(self, start: Position, end: Position) -> int:
        """Count the entries from `start` to `end`, both included."""
        ...

    async def read_entries(
        self,
        start: Position,
        count: int,
        max_position: Position = LATEST,
        *,
        bytes_max: int | None = None,
    ) -> list[Entry]:
        """Read entries in order; see `ManagedLedger.read_entries`."""
        ...


class OffsetLookup:
    """Searches in one partition."""

    def __init__(
        self, store: LedgerStore, ledger: SearchedEntries, rows: IndexRows, index: OffsetIndex
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._rows = rows
        self._index = index

    @property
    def first_offset(self) -> int:
        """The first offset of the oldest entry; UNKNOWN without entries."""
        return self._index.first_offset

    async def find(self, offset: int) -> Position:
        """Position of the first entry that ends at or after the offset.

        Raises:
            LedgerError: the entries cannot be read.
        """
        ledger_id = self._index.find_ledger(offset)
        if ledger_id is None:
            return self._ledger.next_valid_position(self._ledger.first_position)
        end = self._entries_in(ledger_id)
        found = await self._rows.around(ledger_id, end, lambda row: row.first_offset <= offset)
        first = 0
        if found.before is not None:
            is_inside = offset < found.before.next_offset
            first = found.before.first_entry if is_inside else found.before.end_entry
        if found.after is not None:
            end = found.after.first_entry
        async for entry, header in self._headers(SearchRange(ledger_id, first, end, UNKNOWN)):
            if header.last_offset >= offset:
                return entry.position
        return Position(ledger_id, end)

    async def first_at_time(
        self, timestamp: int, *, start_offset: int, end_offset: int
    ) -> TimestampedOffset | None:
        """The first record, in offset order, within the bounds, whose time is not before."""
        for ledger_summary in list(self._index.summaries_since(timestamp, start_offset)):
            found = await self._first_in(
                ledger_summary.ledger_id, timestamp, start_offset, end_offset
            )
            if found is not None:
                return found
        return None

    async def newest(self, *, start_offset: int, end_offset: int) -> TimestampedOffset | None:
        """The first of the records within the bounds that have the largest time.

        Two cases: mostly the newest ledger has a record of the time that is stated for it, which
        is a search by time; where that one lies before the start, or nowhere, all its intervals are
        tried, those that state the largest time first.
        """
        best: TimestampedOffset | None = None
        ledger_summaries = self._index.summaries_since(TIMESTAMP_NONE, start_offset)
        for ledger_summary in sorted(
            ledger_summaries, key=lambda each: (-each.max_timestamp, each.first_offset)
        ):
            newest = ledger_summary.max_timestamp
            if best is not None and (best.timestamp, -best.offset) > (
                newest,
                -ledger_summary.first_offset,
            ):
                break
            found = await self._first_in(ledger_summary.ledger_id, newest, start_offset, end_offset)
            if found is None:
                found = await self._newest_in(ledger_summary.ledger_id, start_offset, end_offset)
            best = newer(best, found)
        return best

    async def _first_in(
        self, ledger_id: int, timestamp: int, start_offset: int, end_offset: int
    ) -> TimestampedOffset | None:
        async for run in self._ranges_since(ledger_id, timestamp, start_offset):
            async for entry, header in self._headers(run):
                if header.base_offset >= end_offset:
                    return None
                if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                    found = await self._search(entry, header, first_since, start_offset, timestamp)
                    if found is not None:
                        return found
        return None

    async def _newest_in(
        self, ledger_id: int, start_offset: int, end_offset: int
    ) -> TimestampedOffset | None:
        best: TimestampedOffset | None = None
        every = self._ranges_since(ledger_id, TIMESTAMP_NONE, start_offset)
        search_ranges = [run async for run in every]
        for run in sorted(search_ranges, key=lambda each: -each.max_timestamp):
            if best is not None and run.max_timestamp < best.timestamp:
                break
            async for entry, header in self._headers(run):
                if header.base_offset >= end_offset or header.last_offset < start_offset:
                    continue
                if best is None or header.max_timestamp >= best.timestamp:
                    newest = await self._search(entry, header, newest_since, start_offset)
                    best = newer(best, newest)
        return best

    async def _search(
        self,
        entry: Entry,
        header: BatchHeader,
        search: Callable[[Buffer, *Arguments, Pause], RecordTime | None],
        *arguments: *Arguments,
    ) -> TimestampedOffset | None:
        """Search one batch, off the event loop unless it is cheap."""
        compute_pool = self._store.compute_pool
        if not header.codec and compute_pool.fits_in_tick(len(entry.buffer)):
            found = search(entry.buffer, *arguments, no_pause)
        else:
            try:
                (found,) = await compute_pool.map(search, [(entry.buffer, *arguments)])
            except PoolClosed:
                raise AlreadyClosed("the store was closed during a look-up") from None
            except ComputeProcessDied as error:
                raise StorageFailed(f"records not read: {error}") from None
        return None if found is None else TimestampedOffset(found.timestamp, found.offset)

    def _entries_in(self, ledger_id: int) -> int:
        first, last = Position(ledger_id, 0), Position(ledger_id, LATEST.entry_id)
        return self._ledger.number_of_entries(first, last)

    async def _ranges_since(
        self, ledger_id: int, timestamp: int, start_offset: int
    ) -> AsyncIterator[SearchRange]:
        """The ranges that may hold a record that new at or after an offset, in order.

        Mostly the first one does. It does not where a newer record lies before `start_offset`: then
        the rows from that one on are read one by one.
        """
        rows, end = self._rows, self._entries_in(ledger_id)
        found = await rows.around(ledger_id, end, lambda row: row.max_timestamp_so_far < timestamp)
        if found.after is not None and found.after.next_offset <= start_offset:
            found = await rows.around(ledger_id, end, lambda row: row.next_offset <= start_offset)
        at = 0 if found.before is None else found.before.end_entry
        async for row in rows.walk(ledger_id, at):
            if row.first_entry > at:  # no row describes these entries
                yield SearchRange(ledger_id, at, row.first_entry, UNKNOWN)
            if row.max_timestamp >= timestamp:
                yield SearchRange(ledger_id, row.first_entry, row.end_entry, row.max_timestamp)
            at = row.end_entry
        if at < end:
            yield SearchRange(ledger_id, at, end, UNKNOWN)

    async def _headers(self, searched: SearchRange) -> AsyncIterator[tuple[Entry, BatchHeader]]:
        """Read the entries of a range, chunk by chunk."""
        position = Position(searched.ledger_id, searched.first_entry)
        last = Position(searched.ledger_id, searched.end_entry - 1)
        while position <= last:
            entries = await self._ledger.read_entries(
                position, SEARCH_ENTRIES, last, bytes_max=SEARCH_BYTES
            )
            if not entries:
                return
            for entry in entries:
                yield entry, read_header(entry.buffer)
            position = entries[-1].position.successor


def newer(
    one: TimestampedOffset | None, other: TimestampedOffset | None
) -> TimestampedOffset | None:
    """The newer of two; the first if their times are equal."""
    found = [each for each in (one, other) if each is not None]
    return max(found, key=lambda each: (each.timestamp, -each.offset), default=None)
