"""Whether a round of the log cleaner may go slowly."""

import pytest

from kledger.ledger import Position
from kledger.topics.compaction.cleaner_plan import Cleaning
from kledger.topics.compaction.cleaning_pace import (
    AHEAD_BYTES_MAX,
    AHEAD_SHARE_MAX,
    ROUND_MS_MAX,
    STEPS_MAX,
    CleaningPace,
)

HORIZON = Position(1, 1)
ROUND = (Cleaning(HORIZON, 1_000, 2_000), Cleaning(HORIZON, 3_000, 4_000))
"""4,000 new bytes, and 30,000 to be read and written."""


@pytest.mark.parametrize(
    ("done", "appended", "passed_ms", "may_be_slow"),
    [
        (0, 0, 0, True),
        (0, 1, 0, False),
        (0, 0, 1, False),
        (15_000, 2_000, 0, True),
        (14_999, 2_000, 0, False),
        (15_000, 0, ROUND_MS_MAX // 2, True),
        (14_999, 0, ROUND_MS_MAX // 2, False),
        (29_999, 5_000, 0, False),
        (30_000, 4_000, ROUND_MS_MAX, True),
    ],
)
def test_the_share_that_is_done_is_not_below_what_has_come_and_the_time_that_has_passed(
    done: int, appended: int, passed_ms: int, may_be_slow: bool
) -> None:
    pace = CleaningPace(ROUND)
    found = pace.may_be_slow(done_bytes=done, appended_bytes=appended, passed_ms=passed_ms)
    assert may_be_slow == found


def test_what_falls_behind_hurries_until_it_is_ahead() -> None:
    pace = CleaningPace(ROUND)

    def may_be_slow(done_share: float) -> bool:
        done = round(done_share * 30_000)
        return pace.may_be_slow(done_bytes=done, appended_bytes=1_000, passed_ms=0)

    ahead = 0.25 + AHEAD_SHARE_MAX
    shares = [0.25, 0.24, 0.25, (0.25 + ahead) / 2, ahead, 0.26, 0.24]
    assert [True, False, False, False, True, True, False] == [*map(may_be_slow, shares)]


def test_a_large_round_hurries_for_a_moment() -> None:
    pace = CleaningPace([Cleaning(HORIZON, 1 << 40, 0)])
    due = STEPS_MAX << 39

    def may_be_slow(done: int) -> bool:
        return pace.may_be_slow(done_bytes=done, appended_bytes=1 << 39, passed_ms=0)

    done = [due - 1, due, due + AHEAD_BYTES_MAX - 1, due + AHEAD_BYTES_MAX, due]
    assert [False, False, False, True, True] == [*map(may_be_slow, done)]


def test_a_record_that_has_waited_too_long_makes_the_round_fast() -> None:
    pace = CleaningPace([*ROUND, Cleaning(HORIZON, 1, 1, is_late=True)])
    assert not pace.may_be_slow(done_bytes=40_000, appended_bytes=0, passed_ms=0)


def test_a_round_without_compactions_may_be_slow() -> None:
    assert CleaningPace([]).may_be_slow(done_bytes=0, appended_bytes=0, passed_ms=0)
