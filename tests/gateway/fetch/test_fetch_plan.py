"""When a fetch is answered and how much each partition adds."""

import pytest

from kledger.gateway.fetch.fetch_plan import (
    FetchBudget,
    FetchWait,
    leader_epoch_error,
    offset_error,
)

MIB = 1024 * 1024


def make_wait(*, bytes_min: int, max_wait_ms: int = 3_000, bytes_max: int = 50 * MIB) -> FetchWait:
    return FetchWait(max_wait_ms=max_wait_ms, bytes_min=bytes_min, bytes_max=bytes_max)


@pytest.mark.parametrize(
    ("asked", "current", "error"), [(-1, 3, 0), (3, 3, 0), (2, 3, 74), (4, 3, 75)]
)
def test_row_69_leader_epochs(asked: int, current: int, error: int) -> None:
    assert error == leader_epoch_error(asked, current)


@pytest.mark.parametrize(("offset", "error"), [(4, 1), (-1, 1), (5, 0), (7, 0), (10, 0), (11, 1)])
def test_row_64_offsets_between_start_and_end(offset: int, error: int) -> None:
    assert error == offset_error(offset, log_start_offset=5, high_watermark=10)


def test_row_63_waits_without_data_and_with_too_little() -> None:
    wait = make_wait(bytes_min=MIB)
    assert not wait.is_over
    assert wait.is_empty
    wait.add(10, MIB)
    assert not wait.is_over
    assert not wait.is_empty


def test_row_63_partition_limit_reached_with_less_than_min_bytes_answers_at_once() -> None:
    wait = make_wait(bytes_min=MIB)
    assert 999 == wait.add(999, 1_000)
    assert not wait.is_over
    assert 1_000 == wait.add(1_000, 1_000, counted_before=999)
    assert wait.is_over
    assert 1_000 == make_wait(bytes_min=MIB).add(5_000, 1_000)


def test_row_63_error_answers_at_once() -> None:
    wait = make_wait(bytes_min=MIB)
    wait.add_error()
    assert wait.is_over


def test_row_63_enough_arrives_over_several_partitions_and_times() -> None:
    wait = make_wait(bytes_min=100)
    first = wait.add(40, MIB)
    wait.add(30, MIB)
    assert not wait.is_over
    assert 69 == wait.add(69, MIB, counted_before=first)
    assert not wait.is_over
    assert 70 == wait.add(70, MIB, counted_before=69)
    assert wait.is_over


@pytest.mark.parametrize(("max_wait_ms", "bytes_min"), [(0, 1), (-1, 1), (500, 0)])
def test_nothing_to_wait_for_is_over_at_once(max_wait_ms: int, bytes_min: int) -> None:
    assert make_wait(bytes_min=bytes_min, max_wait_ms=max_wait_ms).is_over


def test_min_bytes_above_the_answers_limit_waits_for_the_limit_only() -> None:
    wait = make_wait(bytes_min=MIB, bytes_max=100)
    wait.add(100, MIB)
    assert wait.is_over


def test_row_60_61_only_the_first_partition_with_data_is_exempt_from_limits() -> None:
    budget = FetchBudget(MIB)
    assert budget.can_read(MIB)
    budget.spend(0)
    assert budget.is_first
    budget.spend(MIB - 1)
    assert (1, True) == (budget.limit(MIB), budget.can_read(MIB))
    budget.spend(5 * MIB)
    assert not budget.is_first
    assert 0 == budget.limit(MIB)
    assert not budget.can_read(MIB)


def test_row_80_the_answers_limit_bounds_all_partitions_together() -> None:
    budget = FetchBudget(50 * MIB)
    added = 0
    for _ in range(5_000):
        if not budget.can_read(MIB):
            break
        size = budget.limit(MIB)
        budget.spend(size)
        added += size
    assert 50 * MIB == added


def test_limits_below_zero_count_as_none() -> None:
    budget = FetchBudget(-5)
    assert 0 == budget.limit(-1)
    assert budget.can_read(-1)
