"""How often records were delivered before."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kledger.subscriptions.dispatch.redelivery_counts_state import (
    MARKS_MAX,
    RedeliveryCounts,
    RewindCounts,
)
from tests.subscriptions.dispatch.builders import at, indexes

POSITION = at(1)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 0b11111)), max_size=12))
def test_counts_equal_a_counter(changes: list[tuple[bool, int]]) -> None:
    counts, expected = RedeliveryCounts(), Counter[int]()
    for is_forgotten, mask in changes:
        if is_forgotten:
            counts.forget(POSITION, mask)
            for index in indexes(mask):
                del expected[index]
        else:
            counts.add(POSITION, mask)
            expected.update(indexes(mask))
    assert bool(expected) == (len(counts) > 0)
    for records in (0b11111, 0b10101, 0b00100):
        found = list(counts.split(POSITION, records))
        assert {i: expected[i] for i in indexes(records)} == {
            index: count for count, mask in found for index in indexes(mask)
        }
        runs = [index for _, mask in found for index in indexes(mask)]
        assert sorted(runs) == runs, "records come in their order"
        assert all(a[0] != b[0] for a, b in pairwise(found))


def test_unknown_entries_have_count_zero() -> None:
    counts = RedeliveryCounts()
    assert [(0, 0b11)] == list(counts.split(POSITION, 0b11))
    counts.forget(POSITION, 0b11)
    counts.add(at(0), 1)
    counts.add(at(2), 1)
    counts.forget_before(at(1))
    assert [(0, 1)] == list(counts.split(at(0), 1))
    assert [(1, 1)] == list(counts.split(at(2), 1))
    counts.clear()
    assert 0 == len(counts)


def test_marks_count_rewinds_past_a_position() -> None:
    marks = RewindCounts()
    for reached in (5, 3, 5):
        marks.reach(at(reached))
        marks.rewind()
    marks.rewind()  # nothing was delivered in between
    assert [3, 3, 2, 2, 0] == [marks.count_of(at(entry_id)) for entry_id in (0, 3, 4, 5, 6)]
    marks.forget_before(at(4))
    assert 2 == marks.count_of(at(5))
    marks.clear()
    assert 0 == marks.count_of(at(0))


def test_marks_are_limited() -> None:
    marks = RewindCounts()
    for _ in range(MARKS_MAX + 10):
        marks.reach(at(1))
        marks.rewind()
    assert MARKS_MAX == marks.count_of(at(1))
