"""Ranges are divided without a gap or an overlap; limits leave no partition behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kledger.spark.offset_range import KafkaPartition, OffsetRange
from kledger.spark.split_plan import limited_end, split_ranges

A, B = KafkaPartition("orders", 0), KafkaPartition("orders", 1)
sizes = st.lists(st.integers(0, 1000), max_size=5)


def test_ranges_are_one_a_partition_without_a_minimum() -> None:
    ranges = [OffsetRange(A, 3, 9), OffsetRange(B, 5, 5)]
    assert [OffsetRange(A, 3, 9)] == split_ranges(ranges, None)


def test_large_ranges_are_divided_into_more() -> None:
    ranges = [OffsetRange(A, 0, 90), OffsetRange(B, 0, 10)]
    found = split_ranges(ranges, 10)
    assert [10] * 10 == [each.size for each in found]
    assert [9, 1] == [sum(each.where == where for each in found) for where in (A, B)]


@given(sizes, st.none() | st.integers(1, 50))
def test_every_offset_is_read_by_one_task(sizes: list[int], minimum: int | None) -> None:
    ranges = [
        OffsetRange(KafkaPartition("t", number), 7, 7 + size) for number, size in enumerate(sizes)
    ]
    expected = [(each.where, n) for each in ranges for n in range(each.start, each.end)]
    found = split_ranges(ranges, minimum)
    assert expected == [(each.where, n) for each in found for n in range(each.start, each.end)]
    assert all(each.size > 0 for each in found)


def test_limit_is_shared_by_size() -> None:
    assert {A: 75, B: 25} == limited_end({A: 0, B: 0}, {A: 300, B: 100}, 100)


def test_limit_that_is_not_reached_changes_nothing() -> None:
    assert {A: 300, B: 100} == limited_end({A: 0, B: 0}, {A: 300, B: 100}, 400)


def test_small_partitions_advance_by_one_at_least() -> None:
    assert {A: 9, B: 8} == limited_end({A: 0, B: 7}, {A: 100_000, B: 9}, 10)


def test_an_end_before_the_start_stays_at_the_start() -> None:
    """A log that was cut must not let the stream go back, or it would read again."""
    assert {A: 50} == limited_end({A: 50}, {A: 20}, None)
    assert {A: 50} == limited_end({A: 50}, {A: 20}, 5)


@given(sizes, sizes, st.integers(1, 100))
def test_ends_are_between_start_and_what_is_there(
    starts: list[int], more: list[int], limit: int
) -> None:
    pairs = list(zip(starts, more, strict=False))
    start = {KafkaPartition("t", n): begin for n, (begin, _) in enumerate(pairs)}
    end = {KafkaPartition("t", n): begin + size for n, (begin, size) in enumerate(pairs)}
    found = limited_end(start, end, limit)
    assert all(start[where] <= offset <= end[where] for where, offset in found.items())
    assert all(found[where] > start[where] for where in found if end[where] > start[where])
