"""Offset lookup: finds the entry of an offset, and the record of a time, in the stored log.

Rule: the offset index says where to look, the headers and records found there decide. The answer
to a time is the first record in offset order that is not older, with its own timestamp, also inside
a compressed batch and when times are out of order. A batch whose header states a smaller max
timestamp than its records have is taken at its word: it is looked into by that time only.
Must not know: appends, who asks.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from batches.errors import CorruptBatch
from batches.header import BatchHeader, read_header
from batches.reader import iterate_times
from ledger import Entry, LedgerStore, ManagedLedger, Position
from topics import records
from topics.keys import PartitionKeys, ids_behind
from topics.offset_index import Interval, OffsetIndex, contiguous, first_entry_at

SEARCH_ENTRIES = 256
SEARCH_BYTES = 1 << 20
ON_LOOP_RECORDS_MAX = 64
"""A batch with more records, or a compressed one, is looked into in a thread."""


class TimestampedOffset(NamedTuple):
    """Where a record is, and its time."""

    timestamp: int
    offset: int


class OffsetLookup:
    """Searches in one partition."""

    def __init__(
        self, store: LedgerStore, ledger: ManagedLedger, keys: PartitionKeys, index: OffsetIndex
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._keys = keys
        self._index = index

    async def find(self, offset: int) -> Position:
        """Position of the first entry that ends at or behind the offset.

        Raises:
            LedgerError: the entries to look at cannot be read.
        """
        ledger_id = self._index.find_ledger(offset)
        if ledger_id is None:
            return self._ledger.next_valid_position(self._ledger.first_position)
        start = Position(ledger_id, first_entry_at(self._intervals(ledger_id), offset))
        async for entry, header in self._headers(start):
            if header.last_offset >= offset:
                return entry.position
        return self._ledger.last_confirmed_entry.successor

    async def first_at_time(
        self, timestamp: int, *, start_offset: int, end_offset: int
    ) -> TimestampedOffset | None:
        """The first record, in offset order, within the bounds, whose time is not before."""
        for ledger_id, _ in list(self._index.ledgers_by_time(timestamp)):
            for run in self._runs(ledger_id):
                if run.max_timestamp < timestamp or run.next_offset <= start_offset:
                    continue
                async for entry, header in self._run_headers(ledger_id, run):
                    if header.base_offset >= end_offset:
                        return None
                    if header.max_timestamp >= timestamp:
                        look = partial(_first_since, entry, start_offset, timestamp)
                        found = await self._look_into(header, look)
                        if found is not None:
                            return found
        return None

    async def newest(self, *, start_offset: int, end_offset: int) -> TimestampedOffset | None:
        """The first of the records within the bounds that have the largest time."""
        best: TimestampedOffset | None = None
        by_time = sorted(self._index.ledgers_by_time(-1), key=lambda pair: -pair[1])
        for ledger_id, ledger_max in by_time:
            if best is not None and ledger_max < best.timestamp:
                break
            for run in sorted(self._runs(ledger_id), key=lambda each: -each.max_timestamp):
                if best is not None and run.max_timestamp < best.timestamp:
                    break
                async for entry, header in self._run_headers(ledger_id, run):
                    if header.base_offset >= end_offset or header.last_offset < start_offset:
                        continue
                    if best is None or header.max_timestamp >= best.timestamp:
                        look = partial(_newer, entry, start_offset, best)
                        best = await self._look_into(header, look)
        return best

    async def _look_into(
        self, header: BatchHeader, look: Callable[[], TimestampedOffset | None]
    ) -> TimestampedOffset | None:
        """Walk the records of one batch where it does not hold up the loop."""
        if not header.codec and header.record_count <= ON_LOOP_RECORDS_MAX:
            return look()
        return await self._store.run_blocking(look)

    def _intervals(self, ledger_id: int) -> list[Interval]:
        intervals = self._index.intervals_of(ledger_id)
        if intervals is None:
            intervals = load_intervals(self._store, self._keys, ledger_id)
            self._index.put_loaded(ledger_id, intervals)
        return intervals

    def _runs(self, ledger_id: int) -> list[Interval]:
        end = next((i.entries for i in self._ledger.ledgers if i.ledger_id == ledger_id), 0)
        return self._index.runs_of(ledger_id, self._intervals(ledger_id), end)

    async def _run_headers(
        self, ledger_id: int, run: Interval
    ) -> AsyncIterator[tuple[Entry, BatchHeader]]:
        end = Position(ledger_id, run.end_entry - 1)
        async for pair in self._headers(Position(ledger_id, run.first_entry), end):
            yield pair

    async def _headers(
        self, start: Position, end: Position | None = None
    ) -> AsyncIterator[tuple[Entry, BatchHeader]]:
        """Read on from `start`, up to and including `end`, a piece at a time."""
        last = self._ledger.last_confirmed_entry if end is None else end
        position = start
        while position <= last:
            entries = await self._ledger.read_entries(
                position, SEARCH_ENTRIES, last, bytes_max=SEARCH_BYTES
            )
            if not entries:
                return
            for entry in entries:
                yield entry, read_header(entry.buffer)
            position = entries[-1].position.successor


def load_intervals(store: LedgerStore, keys: PartitionKeys, ledger_id: int) -> list[Interval]:
    """The intervals of a ledger that have rows, as far as they join up."""
    prefix = keys.ledger_intervals(ledger_id)
    return contiguous(
        [
            records.decode_interval(ids_behind(key, prefix)[0], row)
            for key, row in store.scan_rows(prefix)
        ]
    )


def _times(entry: Entry, start_offset: int) -> Iterable[TimestampedOffset]:
    """The records of a batch from an offset on; one that cannot be read ends the batch."""
    try:
        for each in iterate_times(entry.buffer):
            if each.offset >= start_offset:
                yield TimestampedOffset(each.timestamp, each.offset)
    except CorruptBatch:
        return


def _first_since(entry: Entry, start_offset: int, timestamp: int) -> TimestampedOffset | None:
    times = _times(entry, start_offset)
    return next((each for each in times if each.timestamp >= timestamp), None)


def _newer(
    entry: Entry, start_offset: int, best: TimestampedOffset | None
) -> TimestampedOffset | None:
    """Return `best`, or the first of the newest records of a batch when that is newer."""
    found = max(_times(entry, start_offset), key=attrgetter("timestamp"), default=None)
    if best is None or found is None:
        return best or found
    if found.timestamp == best.timestamp:
        return min(best, found)
    return max(best, found)
