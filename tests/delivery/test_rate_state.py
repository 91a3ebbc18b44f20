"""The rate over a minute that slides in steps."""

import pytest

from kledger.delivery.rate_state import BUCKET_MS, WINDOW_MS, RateState


@pytest.mark.parametrize(
    ("later_ms", "rate"), [(0, 2.0), (WINDOW_MS - BUCKET_MS, 2.0), (WINDOW_MS, 0.0), (10**12, 0.0)]
)
def test_event_counts_for_a_minute(later_ms: int, rate: float) -> None:
    state = RateState()
    state.add(120, 1_000_000)
    assert rate == state.per_second(1_000_000 + later_ms)


def test_buckets_leave_the_window_one_by_one() -> None:
    state = RateState()
    for at in range(0, 3 * WINDOW_MS, BUCKET_MS):
        state.add(BUCKET_MS // 1_000, at)
    assert 1.0 == state.per_second(3 * WINDOW_MS - 1)
    assert 0.5 == state.per_second(3 * WINDOW_MS - 1 + WINDOW_MS // 2)


def test_rate_of_no_events_is_zero() -> None:
    assert 0.0 == RateState().per_second(0)
