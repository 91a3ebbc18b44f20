"""Which records of one expression pass."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.stateful_processor import TimerValues

from pipelines.deduplicate import FirstRecords, pass_first


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


class StateOfBucket:
    """Spark's handle and list state of one group, in memory."""

    def __init__(self) -> None:
        self.rows: list[tuple[str]] = []
        self.timers: set[int] = set()

    @property
    def times_ms(self) -> dict[str, list[int]]:
        """What is kept, by expression."""
        return {by: times for (text,) in self.rows for by, times in json.loads(text).items()}

    def getListState(self, *_: str) -> StateOfBucket:  # noqa: N802 - Spark's name
        return self

    def get(self) -> Iterator[tuple[str]]:
        return iter(self.rows)

    def put(self, rows: list[tuple[str]]) -> None:
        self.rows = rows

    def clear(self) -> None:
        self.rows = []

    def registerTimer(self, time_ms: int) -> None:  # noqa: N802 - Spark's name
        self.timers.add(time_ms)


def rows_of(records: list[tuple[str, int]], first_offset: int = 0) -> pd.DataFrame:
    """Expressions and times as Spark gives them to a processor, the last one first."""
    rows = [
        {"by": by.encode("latin-1"), "partition": 0, "offset": offset, "time_ms": time_ms,
         "key": None, "value": b"%d" % offset, "headers": None,
         "timestamp": pd.Timestamp(time_ms, unit="ms")}
        for offset, (by, time_ms) in enumerate(records, first_offset)
    ]  # fmt: skip
    return pd.DataFrame(rows[::-1])


def test_expressions_of_a_bucket_do_not_meet() -> None:
    """They are decided on together, as Spark spends as much on a group as on many rows."""
    state = StateOfBucket()
    first = FirstRecords(10)
    first.init(state)
    records = [("a", 100), ("b", 103), ("a", 110), ("b", 104), ("a", 111), ("c", 7)]
    (found,) = first.handleInputRows((5,), iter([rows_of(records)]), TimerValues(0, 0))
    assert [b"0", b"1", b"4", b"5"] == found["value"].tolist()
    assert {"a": [100, 111], "b": [103], "c": [7]} == state.times_ms
    more = rows_of([("c", 17), ("b", 114), ("a", 121)], 6)
    (found,) = first.handleInputRows((5,), iter([more]), TimerValues(0, 0))
    assert [b"7"] == found["value"].tolist()


def test_expressions_need_not_be_utf_8() -> None:
    """A key of bytes, such as a number, that is cast to text is not."""
    state = StateOfBucket()
    first = FirstRecords(10)
    first.init(state)
    records = [("\xff", 100), ("\xfe\x00", 100), ("\xff", 101)]
    for passing in ([b"0", b"1"], []):
        (found,) = first.handleInputRows((5,), iter([rows_of(records)]), TimerValues(0, 0))
        assert passing == found["value"].tolist()


def test_what_passed_is_forgotten_when_only_late_records_could_meet_it() -> None:
    state = StateOfBucket()
    first = FirstRecords(10)
    first.init(state)
    list(first.handleInputRows((5,), iter([rows_of([("a", 95), ("b", 103)])]), TimerValues(0, 0)))
    assert {120} == state.timers
    for watermark, left in ((105, {"a", "b"}), (106, {"b"}), (113, {"b"}), (120, set())):
        assert not list(first.handleExpiredTimer((5,), TimerValues(0, watermark), None))
        assert left == state.times_ms.keys()
