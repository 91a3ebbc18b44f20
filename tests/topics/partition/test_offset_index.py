"""The offset index against full scans."""

from hypothesis import given
from hypothesis import strategies as st

from kledger.topics.partition.offset_index import (
    INTERVAL_BYTES_MIN,
    IndexRow,
    Interval,
    LedgerSummary,
    OffsetIndex,
    interval_bytes,
)

Entry = tuple[int, int, int, int, int]  # ledger, entry, base offset, next offset, timestamp


def noted(entries: list[Entry], size: int = 100) -> tuple[OffsetIndex, list[IndexRow]]:
    index = OffsetIndex(250)
    rows: list[IndexRow] = []
    for ledger, entry, base, end, time in entries:
        rows += index.add_entry(
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


def intervals_in(rows: list[IndexRow], ledger_id: int) -> list[Interval]:
    return [
        row.content
        for row in rows
        if isinstance(row.content, Interval) and row.ledger_id == ledger_id
    ]


def spans_in(rows: list[IndexRow]) -> list[LedgerSummary]:
    return [row.content for row in rows if isinstance(row.content, LedgerSummary)]


def test_intervals_and_spans_get_rows_when_they_are_complete() -> None:
    _, rows = noted(run([4, 1], [7, 9, 8]))
    assert [
        IndexRow(5, Interval(0, 3, 0, 6, 9, 9)),
        IndexRow(5, Interval(3, 4, 6, 8, 7, 9)),
        IndexRow(5, LedgerSummary(5, 0, 8, 9)),
    ] == rows


def test_interval_bytes_bounds_the_rows_of_a_ledger() -> None:
    assert INTERVAL_BYTES_MIN == interval_bytes(1 << 20)
    assert 256 << 10 == interval_bytes(1 << 30)
    assert 100 == interval_bytes(400)


COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=4)
TIMES = st.lists(st.integers(0, 50), min_size=1, max_size=7)


@given(COUNTS, TIMES)
def test_intervals_say_what_is_in_them(counts: list[int], times: list[int]) -> None:
    entries = run([*counts, 1], times)
    _, rows = noted(entries)
    for ledger_id, count in enumerate(counts, 5):
        mine = [each for each in entries if each[0] == ledger_id]
        intervals = intervals_in(rows, ledger_id)
        assert [0, *(each.end_entry for each in intervals)] == [
            *(each.first_entry for each in intervals), count
        ]  # fmt: skip
        for each in intervals:
            inside = mine[each.first_entry : each.end_entry]
            assert (inside[0][2], inside[-1][3]) == (each.first_offset, each.next_offset)
            assert max(e[4] for e in inside) == each.max_timestamp
            assert max(e[4] for e in mine[: each.end_entry]) == each.max_timestamp_so_far
            assert 1 <= len(inside) <= 3


@given(COUNTS, TIMES, st.data())
def test_every_offset_is_in_the_ledger_found(
    counts: list[int], times: list[int], data: st.DataObject
) -> None:
    entries = run(counts, times)
    index, _ = noted(entries)
    wanted = data.draw(st.sampled_from(entries))
    offset = data.draw(st.integers(wanted[2], wanted[3] - 1))
    assert wanted[0] == index.find_ledger(offset)


@given(COUNTS, TIMES, st.integers(-1, 55), st.integers(-1, 80), st.integers(0, 4))
def test_ledgers_of_a_time_are_those_that_a_scan_finds(
    counts: list[int], times: list[int], timestamp: int, start: int, removed: int
) -> None:
    entries = run(counts, times)
    index, _ = noted(entries)
    index.remove_before(5 + removed)
    found = [ledger_summary.ledger_id for ledger_summary in index.summaries_since(timestamp, start)]
    expected = {e[0] for e in entries if e[4] >= timestamp and e[0] >= 5 + removed}
    ends = {e[0]: e[3] for e in entries}
    assert found == sorted(found)
    assert {each for each in expected if ends[each] > start} <= set(found) <= expected


@given(COUNTS, TIMES, st.integers(0, 30))
def test_resumed_index_equals_one_that_never_stopped(
    counts: list[int], times: list[int], cut: int
) -> None:
    entries = run(counts, times)
    cut = min(cut, len(entries))
    whole, rows = noted(entries)
    _, before = noted(entries[:cut])
    ledger_id = entries[cut - 1][0] if cut else entries[0][0]
    intervals = intervals_in(before, ledger_id)
    again = OffsetIndex(250)
    for ledger_summary in spans_in(before):
        again.add_summary(ledger_summary)
    covered = 0
    if intervals:
        again.resume(ledger_id, intervals[0].first_offset, intervals[-1])
        covered = intervals[-1].end_entry
    after: list[IndexRow] = []
    for ledger, entry, base, end, time in entries:
        if (ledger, entry) >= (ledger_id, covered):
            after += again.add_entry(
                ledger, entry, base_offset=base, next_offset=end, size=100, max_timestamp=time
            )
    assert whole.all_summaries() == again.all_summaries()
    assert rows == before + after


def test_remove_before_forgets_ledgers_even_the_newest() -> None:
    index, _ = noted(run([2, 2, 2], [5]))
    index.remove_before(6)
    assert [6, 7] == [ledger_summary.ledger_id for ledger_summary in index.all_summaries()]
    assert index.find_ledger(1) is None
    index.remove_before(8)
    assert [] == index.all_summaries() == list(index.summaries_since(-1, 0))
    assert index.find_ledger(100) is None
    assert [] == index.add_entry(9, 0, base_offset=12, next_offset=14, size=1, max_timestamp=1)
    assert [LedgerSummary(9, 12, 14, 1)] == index.all_summaries()
