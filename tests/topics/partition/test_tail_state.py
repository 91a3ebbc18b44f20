"""The tail against a plain scan."""

from hypothesis import given
from hypothesis import strategies as st

from kledger.topics.partition.tail_state import ENTRIES_MAX, TailState

ENTRIES = st.lists(st.tuples(st.integers(1, 5), st.integers(61, 300)), min_size=1, max_size=20)


def tail_of(entries: list[tuple[int, int]]) -> tuple[TailState, list[tuple[int, int, int]]]:
    """The tail, and per entry: base offset, next offset, size."""
    tail, rows, offset = TailState(), [], 100
    for index, (count, size) in enumerate(entries):
        tail.append(offset, size, index, 7, index)
        rows.append((offset, offset + count, size))
        offset += count
    return tail, rows


@given(ENTRIES, st.integers(95, 210), st.integers(95, 210), st.integers(0, 3000))
def test_tail_equals_a_scan(
    entries: list[tuple[int, int]], offset: int, upto: int, bytes_max: int
) -> None:
    tail, rows = tail_of(entries)
    end = rows[-1][1]
    offset, upto = min(offset, end), min(max(upto, 100), end)
    row = tail.find(offset)
    assert max((i for i, r in enumerate(rows) if r[0] <= offset), default=-1) == row
    if row < 0:
        assert tail.bytes_between(offset, upto) is None
        assert tail.position_of(offset) is None
        return
    assert (7, row) == tail.position_of(offset)
    wanted = [r[2] for r in rows[row:] if r[0] < upto]
    if offset < upto:
        assert sum(wanted) == tail.bytes_between(offset, upto)
        taken, size = 0, 0
        for each in wanted:
            if size + each > bytes_max:
                break
            taken, size = taken + 1, size + each
        assert row + taken == tail.end_row(row, upto, bytes_max)
        assert size == tail.size_of(row, row + taken)


@given(ENTRIES, st.integers(0, 19))
def test_truncate_forgets_the_newest(entries: list[tuple[int, int]], kept: int) -> None:
    tail, rows = tail_of(entries)
    kept = min(kept, len(rows))
    base = rows[kept][0] if kept < len(rows) else rows[-1][1]
    tail.truncate(base)
    assert kept == len(tail)
    assert sum(r[2] for r in rows[:kept]) == tail.size_of(0, kept)
    tail.append(base, 61, 0, 7, kept)
    assert 61 == tail.bytes_between(base, base + 1)


def test_oldest_entries_go_and_sizes_stay_right() -> None:
    tail = TailState()
    for offset in range(3 * ENTRIES_MAX):
        tail.append(offset, 100, 0, 1, offset)
        assert len(tail) <= ENTRIES_MAX
    end = 3 * ENTRIES_MAX
    assert 1000 == tail.bytes_between(end - 10, end)
    assert tail.bytes_between(0, end) is None
    row = tail.find(end - 1)
    assert end - 1 == tail.entry_ids[row]
