"""Which records of one expression pass."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.deduplicate import pass_first


@pytest.mark.parametrize(
    ("times", "passed", "passing", "after"),
    [
        ([100], [], [True], [100]),
        ([100, 100, 105, 110], [], [True, False, False, False], [100]),
        ([100, 111], [], [True, True], [100, 111]),
        ([110], [100], [False], [100]),
        ([111], [100], [True], [100, 111]),
        ([95, 89, 90], [100], [False, True, False], [89, 100]),
        ([89, 89, 79], [100], [True, False, False], [89, 100]),
        ([50, 105, 44, 61], [100], [True, False, False, True], [50, 61, 100]),
        ([], [7], [], [7]),
    ],
)
def test_first_passes_and_others_within_the_horizon_do_not(
    times: list[int], passed: list[int], passing: list[bool], after: list[int]
) -> None:
    assert (passing, after) == pass_first(times, passed, 10)


@given(st.lists(st.integers(0, 100)), st.integers(0, 100), st.integers(1, 50))
def test_the_result_does_not_depend_on_where_batches_are_cut(
    times: list[int], cut: int, horizon: int
) -> None:
    first, passed = pass_first(times[:cut], [], horizon)
    second, passed = pass_first(times[cut:], passed, horizon)
    assert (first + second, passed) == pass_first(times, [], horizon)


@given(st.lists(st.integers(0, 100)), st.integers(1, 50))
def test_no_two_that_pass_are_within_the_horizon(times: list[int], horizon: int) -> None:
    """Records that were far behind the last one all passed, also twice the same one."""
    passing, passed = pass_first(times, [], horizon)
    assert passed == sorted(time for time, is_first in zip(times, passing, strict=True) if is_first)
    assert all(later - earlier > horizon for earlier, later in pairwise(passed))
    assert all(any(abs(time - each) <= horizon for each in passed) for time in times)
