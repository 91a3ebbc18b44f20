"""Offset index: the part of the managed ledger in which to search for an offset or a time.

Rule: only confirmed entries are described, and their rows are written after them, so the index is
never ahead of the log. It narrows a search down to a range of entries; the headers of the batches
decide. Every ledger is cut into intervals of entries; an interval is complete, and gets a row, when
it holds enough bytes or its ledger ends. In memory is one summary per ledger; intervals are read
from their rows (`index_rows`).
Must not know: storage, entries' bytes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from operator import attrgetter
from typing import NamedTuple

INTERVAL_BYTES_MIN = 64 << 10
INTERVALS_PER_LEDGER_MIN = 4
INTERVALS_PER_LEDGER_MAX = 4096
TIMESTAMP_NONE = -1
NO_LEDGER = -1
UNKNOWN = (1 << 63) - 1

_first_offset = attrgetter("first_offset")
_next_offset = attrgetter("next_offset")


class Interval(NamedTuple):
    """A range of entries of one ledger.

    Attributes:
        end_entry: the entry after the last one.
        max_timestamp: the largest that the headers of its batches state.
        max_timestamp_so_far: the largest in the ledger up to its end; it never falls from one
            interval to the next, so a search by time can halve.
    """

    first_entry: int
    end_entry: int
    first_offset: int
    next_offset: int
    max_timestamp: int
    max_timestamp_so_far: int


class LedgerSummary(NamedTuple):
    """A whole ledger that has entries."""

    ledger_id: int
    first_offset: int
    next_offset: int
    max_timestamp: int


class IndexRow(NamedTuple):
    """A row to be stored: a complete interval of a ledger, or the summary of a closed one."""

    ledger_id: int
    content: Interval | LedgerSummary


NO_ROWS: tuple[IndexRow, ...] = ()


def interval_bytes(segment_bytes: int) -> int:
    """How large intervals are: a ledger has at least four of them, and a bounded number of rows."""
    smallest = min(INTERVAL_BYTES_MIN, segment_bytes // INTERVALS_PER_LEDGER_MIN)
    return max(smallest, segment_bytes // INTERVALS_PER_LEDGER_MAX)


class OffsetIndex:
    """The index of one partition."""

    def __init__(self, interval_size: int) -> None:
        self.interval_size = interval_size
        self._summaries: list[LedgerSummary] = []
        self._peaks: list[int] = []  # per summary: the largest time up to its end
        self._ledger_id = NO_LEDGER
        self._ledger_first_offset = 0
        self._ledger_max = TIMESTAMP_NONE
        self._part_entry = 0
        self._part_offset = 0
        self._part_size = 0
        self._part_max = TIMESTAMP_NONE
        self._next_entry = 0
        self._next_offset = 0

    def add_entry(
        self,
        ledger_id: int,
        entry_id: int,
        *,
        base_offset: int,
        next_offset: int,
        size: int,
        max_timestamp: int,
    ) -> Sequence[IndexRow]:
        """Add the next confirmed entry; return the rows that it completes, mostly none."""
        rows: Sequence[IndexRow] = NO_ROWS
        if ledger_id != self._ledger_id:
            rows = self._begin_ledger(ledger_id, entry_id, base_offset)
        elif self._part_size >= self.interval_size:
            rows = self._complete_part()
            self._begin_part(entry_id, base_offset)
        self._part_size += size
        if max_timestamp > self._part_max:  # noqa: PLR1730 - max() costs four times as much here
            self._part_max = max_timestamp
        self._next_entry = entry_id + 1
        self._next_offset = next_offset
        return rows

    def complete(self) -> Sequence[IndexRow]:
        """Return the rows of the open ledger that are left, its summary included; it is whole."""
        if self._ledger_id == NO_LEDGER:
            return NO_ROWS
        rows = self._complete_part()
        (ledger_summary,) = self._open_summary()
        return [*rows, IndexRow(self._ledger_id, ledger_summary)]

    def add_summary(self, ledger_summary: LedgerSummary) -> None:
        """Add a closed ledger after the known ones."""
        self._summaries.append(ledger_summary)
        peak = self._peaks[-1] if self._peaks else TIMESTAMP_NONE
        self._peaks.append(max(peak, ledger_summary.max_timestamp))

    def resume(self, ledger_id: int, first_offset: int, newest: Interval) -> None:
        """Continue a ledger that has rows; `add_entry` adds the entries after `newest`."""
        self._ledger_id = ledger_id
        self._ledger_first_offset = first_offset
        self._ledger_max = newest.max_timestamp_so_far
        self._begin_part(newest.end_entry, newest.next_offset)
        self._next_entry, self._next_offset = self._part_entry, self._part_offset

    def remove_before(self, ledger_id: int) -> None:
        """Forget the ledgers below that id."""
        self._summaries = [
            ledger_summary
            for ledger_summary in self._summaries
            if ledger_summary.ledger_id >= ledger_id
        ]
        self._peaks = list(
            accumulate((ledger_summary.max_timestamp for ledger_summary in self._summaries), max)
        )
        if self._ledger_id < ledger_id:
            self._ledger_id = NO_LEDGER
            self._ledger_max = self._part_max = TIMESTAMP_NONE

    def all_summaries(self) -> list[LedgerSummary]:
        """Every ledger that has entries, the open one included."""
        return [*self._summaries, *self._open_summary()]

    @property
    def first_offset(self) -> int:
        """The first offset of the oldest ledger that has entries; UNKNOWN without one."""
        if self._summaries:
            return self._summaries[0].first_offset
        return UNKNOWN if self._ledger_id == NO_LEDGER else self._ledger_first_offset

    def find_ledger(self, offset: int) -> int | None:
        """Id of the ledger that holds an offset; None below all of them."""
        if self._ledger_id != NO_LEDGER and offset >= self._ledger_first_offset:
            return self._ledger_id
        at = bisect_right(self._summaries, offset, key=_first_offset) - 1
        return self._summaries[at].ledger_id if at >= 0 else None

    def summaries_since(self, timestamp: int, start_offset: int) -> Iterator[LedgerSummary]:
        """Ledgers that may hold a record that new at or after an offset, oldest first."""
        ledger_summaries = self._summaries
        begin = max(
            bisect_left(self._peaks, timestamp),
            bisect_right(ledger_summaries, start_offset, key=_next_offset),
        )
        for ledger_summary in (*islice(ledger_summaries, begin, None), *self._open_summary()):
            if ledger_summary.max_timestamp >= timestamp:
                yield ledger_summary

    def _open_summary(self) -> list[LedgerSummary]:
        if self._ledger_id == NO_LEDGER:
            return []
        largest = max(self._ledger_max, self._part_max)
        return [
            LedgerSummary(self._ledger_id, self._ledger_first_offset, self._next_offset, largest)
        ]

    def _begin_ledger(self, ledger_id: int, entry_id: int, base_offset: int) -> list[IndexRow]:
        assert ledger_id > self._ledger_id, f"ledger {ledger_id} after {self._ledger_id}"
        rows: list[IndexRow] = []
        if self._ledger_id != NO_LEDGER:
            rows += self.complete()
            self.add_summary(*self._open_summary())
        self._ledger_id = ledger_id
        self._ledger_first_offset = base_offset
        self._ledger_max = TIMESTAMP_NONE
        self._begin_part(entry_id, base_offset)
        return rows

    def _begin_part(self, entry_id: int, base_offset: int) -> None:
        self._part_entry = entry_id
        self._part_offset = base_offset
        self._part_size = 0
        self._part_max = TIMESTAMP_NONE

    def _complete_part(self) -> list[IndexRow]:
        if self._part_entry == self._next_entry:
            return []
        self._ledger_max = max(self._ledger_max, self._part_max)
        part = Interval(
            self._part_entry,
            self._next_entry,
            self._part_offset,
            self._next_offset,
            self._part_max,
            self._ledger_max,
        )
        return [IndexRow(self._ledger_id, part)]
