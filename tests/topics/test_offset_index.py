"""The offset index against full scans."""

from hypothesis import given
from hypothesis import strategies as st

from topics.offset_index import (
    INTERVAL_BYTES_MIN,
    UNKNOWN,
    IndexRow,
    Interval,
    OffsetIndex,
    Span,
    contiguous,
    first_entry_at,
    interval_bytes,
)

Entry = tuple[int, int, int, int, int]  # ledger, entry, base offset, next offset, timestamp


def noted(entries: list[Entry], size: int = 100) -> tuple[OffsetIndex, list[IndexRow]]:
    index = OffsetIndex(250)
    rows: list[IndexRow] = []
    for ledger, entry, base, end, time in entries:
        rows += index.note(
            ledger, entry, base_offset=base, next_offset=end, size=size, max_timestamp=time
        )
    return index, rows


def run(counts: list[int], times: list[int]) -> list[Entry]:
    """Entries of ledgers 5, 6, … with that many entries; two offsets each."""
    entries: list[Entry] = []
    offset = 0
    for ledger, count in enumerate(counts, 5):
        for entry in range(count):
            entries.append((ledger, entry, offset, offset + 2, times[len(entries) % len(times)]))
            offset += 2
    return entries


def test_intervals_and_spans_get_rows_when_they_are_complete() -> None:
    _, rows = noted(run([4, 1], [7, 9, 8]))
    assert [
        IndexRow(5, Interval(0, 3, 0, 6, 9)),
        IndexRow(5, Interval(3, 4, 6, 8, 7)),
        IndexRow(5, Span(5, 0, 8, 9)),
    ] == rows


def test_interval_bytes_bounds_the_rows_of_a_ledger() -> None:
    assert INTERVAL_BYTES_MIN == interval_bytes(1 << 20)
    assert 256 << 10 == interval_bytes(1 << 30)
    assert 100 == interval_bytes(400)


COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=4)
TIMES = st.lists(st.integers(0, 50), min_size=1, max_size=7)


@given(COUNTS, TIMES, st.data())
def test_search_begins_at_or_before_the_entry_and_not_far_from_it(
    counts: list[int], times: list[int], data: st.DataObject
) -> None:
    entries = run(counts, times)
    index, _ = noted(entries)
    wanted = data.draw(st.sampled_from(entries))
    offset = data.draw(st.integers(wanted[2], wanted[3] - 1))
    assert wanted[0] == index.find_ledger(offset)
    intervals = index.intervals_of(wanted[0])
    if intervals is not None:
        first = first_entry_at(intervals, offset)
        assert wanted[1] - 3 < first <= wanted[1]


@given(COUNTS, TIMES, st.integers(-1, 55))
def test_no_entry_of_a_time_is_outside_the_runs(
    counts: list[int], times: list[int], timestamp: int
) -> None:
    entries = run(counts, times)
    index, _ = noted(entries)
    found = set()
    for ledger_id, largest in index.ledgers_by_time(timestamp):
        intervals = index.intervals_of(ledger_id)
        if intervals is None:
            found |= {(ledger_id, entry) for entry in range(counts[ledger_id - 5])}
            continue
        runs = index.runs_of(ledger_id, intervals, counts[ledger_id - 5])
        assert largest == max(each.max_timestamp for each in runs)
        assert [each.first_entry for each in runs[1:]] == [each.end_entry for each in runs[:-1]]
        for each in runs:
            if each.max_timestamp >= timestamp:
                found |= {(ledger_id, e) for e in range(each.first_entry, each.end_entry)}
    assert {(e[0], e[1]) for e in entries if e[4] >= timestamp} <= found


@given(COUNTS, TIMES, st.integers(0, 30))
def test_resumed_index_equals_one_that_never_stopped(
    counts: list[int], times: list[int], cut: int
) -> None:
    entries = run(counts, times)
    cut = min(cut, len(entries))
    whole, rows = noted(entries)
    _, before = noted(entries[:cut])
    spans = [row.content for row in before if isinstance(row.content, Span)]
    ledger_id = entries[cut - 1][0] if cut else entries[0][0]
    intervals = [
        row.content
        for row in before
        if isinstance(row.content, Interval) and row.ledger_id == ledger_id
    ]
    again = OffsetIndex(250)
    again.spans = spans
    covered = 0
    if intervals:
        again.resume(ledger_id, contiguous(intervals))
        covered = intervals[-1].end_entry
    after: list[IndexRow] = []
    for ledger, entry, base, end, time in entries:
        if (ledger, entry) >= (ledger_id, covered):
            after += again.note(
                ledger, entry, base_offset=base, next_offset=end, size=100, max_timestamp=time
            )
    assert whole.all_spans() == again.all_spans()
    assert rows == before + after


def test_remove_before_forgets_ledgers_even_the_newest() -> None:
    index, _ = noted(run([2, 2, 2], [5]))
    index.remove_before(6)
    assert [6, 7] == [span.ledger_id for span in index.all_spans()]
    assert index.find_ledger(1) is None
    index.remove_before(8)
    assert [] == index.all_spans()
    assert index.find_ledger(100) is None
    assert [] == index.note(9, 0, base_offset=12, next_offset=14, size=1, max_timestamp=1)
    assert [Span(9, 12, 14, 1)] == index.all_spans()


def test_contiguous_stops_at_a_gap() -> None:
    a, b, d = (Interval(first, first + 2, first, first + 2, 0) for first in (0, 2, 6))
    assert [a, b] == contiguous([d, b, a])
    assert [] == contiguous([b, d])


def test_entries_without_an_interval_have_to_be_looked_at() -> None:
    index = OffsetIndex(100)
    assert [Interval(0, 3, 0, UNKNOWN, UNKNOWN)] == index.runs_of(5, [], 3)


def test_only_a_few_old_ledgers_stay_loaded() -> None:
    index = OffsetIndex(100)
    for ledger_id in range(10):
        index.put_loaded(ledger_id, [])
    assert [None, []] == [index.intervals_of(5), index.intervals_of(9)]
