"""Which records of one expression pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.deduplicate import pass_first


@pytest.mark.parametrize(
    ("times", "last", "passing", "after"),
    [
        ([100], None, [True], 100),
        ([100, 100, 105, 110], None, [True, False, False, False], 100),
        ([100, 111], None, [True, True], 111),
        ([110], 100, [False], 100),
        ([111], 100, [True], 111),
        ([95, 89, 90], 100, [False, True, False], 100),
        ([], 7, [], 7),
    ],
)
def test_first_passes_and_others_within_the_horizon_do_not(
    times: list[int], last: int | None, passing: list[bool], after: int | None
) -> None:
    assert (passing, after) == pass_first(times, last, 10)


@given(st.lists(st.integers(0, 100)), st.integers(0, 100), st.integers(1, 50))
def test_the_result_does_not_depend_on_where_batches_are_cut(
    times: list[int], cut: int, horizon: int
) -> None:
    first, last = pass_first(times[:cut], None, horizon)
    second, last = pass_first(times[cut:], last, horizon)
    assert (first + second, last) == pass_first(times, None, horizon)
