"""Offset index: where in the managed ledger an offset or a time is to be looked for.

Rule: only confirmed entries are described, and only behind them in the log, so the index is never
ahead of the log. It narrows a search down to a run of entries and never answers by itself: a
batch's header is what counts. Every ledger is cut into intervals of entries; an interval is
complete, and gets a row, when it holds enough bytes or its ledger ends.
Must not know: storage, entries' bytes.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

INTERVAL_BYTES_MIN = 64 << 10
INTERVALS_PER_LEDGER_MIN = 4
INTERVALS_PER_LEDGER_MAX = 4096
LEDGERS_REMEMBERED_MAX = 4
TIMESTAMP_NONE = -1
NO_LEDGER = -1
UNKNOWN = (1 << 63) - 1

_first_offset = attrgetter("first_offset")


class Interval(NamedTuple):
    """A run of entries of one ledger.

    Attributes:
        end_entry: the entry behind the last one.
        max_timestamp: the largest that the headers of its batches state.
    """

    first_entry: int
    end_entry: int
    first_offset: int
    next_offset: int
    max_timestamp: int


class Span(NamedTuple):
    """A whole ledger that has entries."""

    ledger_id: int
    first_offset: int
    next_offset: int
    max_timestamp: int


class IndexRow(NamedTuple):
    """What is to be stored: a complete interval of a ledger, or the span of one that ended."""

    ledger_id: int
    content: Interval | Span


NO_ROWS: tuple[IndexRow, ...] = ()


def interval_bytes(segment_bytes: int) -> int:
    """How large intervals are: a ledger has at least four of them, and a bounded number of rows."""
    smallest = min(INTERVAL_BYTES_MIN, segment_bytes // INTERVALS_PER_LEDGER_MIN)
    return max(smallest, segment_bytes // INTERVALS_PER_LEDGER_MAX)


class OffsetIndex:
    """The index of one partition; the intervals of old ledgers are loaded when they are needed."""

    def __init__(self, interval_size: int) -> None:
        self.interval_size = interval_size
        self.spans: list[Span] = []
        self._loaded: dict[int, list[Interval]] = {}
        self._ledger_id = NO_LEDGER
        self._ledger_first_offset = 0
        self._ledger_max = TIMESTAMP_NONE
        self._intervals: list[Interval] = []
        self._part_entry = 0
        self._part_offset = 0
        self._part_size = 0
        self._part_max = TIMESTAMP_NONE
        self._next_entry = 0
        self._next_offset = 0

    def note(
        self,
        ledger_id: int,
        entry_id: int,
        *,
        base_offset: int,
        next_offset: int,
        size: int,
        max_timestamp: int,
    ) -> Sequence[IndexRow]:
        """Take in the next confirmed entry; return what is to be stored now, mostly nothing."""
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

    def resume(self, ledger_id: int, intervals: list[Interval]) -> None:
        """Continue a ledger that has rows already; entries behind them are noted next."""
        assert intervals, f"ledger {ledger_id} has nothing to resume"
        self._ledger_id = ledger_id
        self._ledger_first_offset = intervals[0].first_offset
        self._ledger_max = max(each.max_timestamp for each in intervals)
        self._intervals = intervals
        self._begin_part(intervals[-1].end_entry, intervals[-1].next_offset)
        self._next_entry, self._next_offset = self._part_entry, self._part_offset

    def remove_before(self, ledger_id: int) -> None:
        """Forget the ledgers below that id."""
        kept = [span for span in self.spans if span.ledger_id >= ledger_id]
        for span in self.spans[: len(self.spans) - len(kept)]:
            self._loaded.pop(span.ledger_id, None)
        self.spans = kept
        if self._ledger_id < ledger_id:
            self._ledger_id = NO_LEDGER
            self._intervals = []
            self._ledger_max = self._part_max = TIMESTAMP_NONE

    def all_spans(self) -> list[Span]:
        """Every ledger that has entries, the one written to included."""
        if self._ledger_id == NO_LEDGER:
            return list(self.spans)
        largest = max(self._ledger_max, self._part_max)
        newest = Span(self._ledger_id, self._ledger_first_offset, self._next_offset, largest)
        return [*self.spans, newest]

    def find_ledger(self, offset: int) -> int | None:
        """Id of the ledger that holds an offset; None below all of them."""
        if self._ledger_id != NO_LEDGER and offset >= self._ledger_first_offset:
            return self._ledger_id
        row = bisect_right(self.spans, offset, key=_first_offset) - 1
        return self.spans[row].ledger_id if row >= 0 else None

    def intervals_of(self, ledger_id: int) -> list[Interval] | None:
        """The complete intervals of a ledger; None when they are to be loaded first."""
        return self._intervals if ledger_id == self._ledger_id else self._loaded.get(ledger_id)

    def put_loaded(self, ledger_id: int, intervals: list[Interval]) -> None:
        """Keep the intervals of an old ledger for a while."""
        if len(self._loaded) >= LEDGERS_REMEMBERED_MAX:
            del self._loaded[next(iter(self._loaded))]
        self._loaded[ledger_id] = intervals

    def runs_of(self, ledger_id: int, intervals: list[Interval], end_entry: int) -> list[Interval]:
        """The complete intervals, and what follows them in the ledger as one more.

        Args:
            ledger_id: the ledger.
            intervals: its complete ones.
            end_entry: the entry behind the last confirmed one of the ledger.
        """
        covered = intervals[-1].end_entry if intervals else 0
        if covered >= end_entry:
            return intervals
        is_open = ledger_id == self._ledger_id
        if is_open and self._part_entry == covered and self._part_max != TIMESTAMP_NONE:
            rest = Interval(
                covered, end_entry, self._part_offset, self._next_offset, self._part_max
            )
        else:  # nothing is known of these entries: they have to be looked at
            rest = Interval(covered, end_entry, 0, UNKNOWN, UNKNOWN)
        return [*intervals, rest]

    def ledgers_by_time(self, timestamp: int) -> Iterator[tuple[int, int]]:
        """Ids and largest times of the ledgers that may hold a record that new, oldest first."""
        for span in self.all_spans():
            if span.max_timestamp >= timestamp:
                yield span.ledger_id, span.max_timestamp

    def _begin_ledger(self, ledger_id: int, entry_id: int, base_offset: int) -> list[IndexRow]:
        assert ledger_id > self._ledger_id, f"ledger {ledger_id} after {self._ledger_id}"
        rows: list[IndexRow] = []
        if self._ledger_id != NO_LEDGER:
            rows = self._complete_part()
            span = Span(
                self._ledger_id, self._ledger_first_offset, self._next_offset, self._ledger_max
            )
            rows.append(IndexRow(self._ledger_id, span))
            self.spans.append(span)
            self.put_loaded(self._ledger_id, self._intervals)
        self._ledger_id = ledger_id
        self._ledger_first_offset = base_offset
        self._ledger_max = TIMESTAMP_NONE
        self._intervals = []
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
        part = Interval(
            self._part_entry,
            self._next_entry,
            self._part_offset,
            self._next_offset,
            self._part_max,
        )
        self._intervals.append(part)
        self._ledger_max = max(self._ledger_max, part.max_timestamp)
        return [IndexRow(self._ledger_id, part)]


def first_entry_at(intervals: list[Interval], offset: int) -> int:
    """The entry at which a search for an offset begins, within one ledger."""
    row = bisect_right(intervals, offset, key=_first_offset) - 1
    if row < 0:
        return 0
    found = intervals[row]
    # The rest of the ledger, behind the last complete interval, is not in the list.
    return found.first_entry if offset < found.next_offset else found.end_entry


def contiguous(intervals: list[Interval]) -> list[Interval]:
    """What can be trusted of the intervals found for a ledger: each begins where one ended."""
    trusted: list[Interval] = []
    for each in sorted(intervals):
        if each.first_entry != (trusted[-1].end_entry if trusted else 0):
            break
        trusted.append(each)
    return trusted
