"""The judge: it accepts what is equal and names what is not."""

import pandas as pd
import pytest

from pipelines.expected import (
    Mismatch,
    compare,
    delays_per_carrier_and_hour,
    delays_per_carrier_and_window,
)

FRAME = pd.DataFrame(
    {"key": ["a", "b"], "flights": [1, 2], "x_sum": [3.0, 0.0], "x_mean": [1.0, 2.0]}
)


def test_compare_equal_tables_in_any_order_counts_values() -> None:
    assert compare("x", FRAME, FRAME.iloc[::-1], ["key"]) == 8


def test_compare_null_sum_equals_zero() -> None:
    assert compare("x", FRAME, FRAME.assign(x_sum=[3.0, None]), ["key"]) == 8


def test_compare_mean_within_tolerance_passes() -> None:
    assert compare("x", FRAME, FRAME.assign(x_mean=[1.0, 2.0 + 1e-10]), ["key"]) == 8


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (FRAME.head(1), "expected 2 rows, got 1"),
        (FRAME.assign(flights=[1, 3]), "column flights"),
        (FRAME.assign(flights=[1.0, None]), "column flights"),
        (FRAME.assign(x_sum=[3.0, 1e-9]), "column x_sum"),
        (FRAME.assign(x_mean=[1.0, 2.0 + 1e-7]), "column x_mean"),
        (FRAME.assign(key=["a", "c"]), "expected 'b', got 'c'"),
    ],
)
def test_compare_difference_is_named(changed: pd.DataFrame, message: str) -> None:
    with pytest.raises(Mismatch, match=message):
        compare("x", FRAME, changed, ["key"])


def test_expected_results_cover_every_flight() -> None:
    assert delays_per_carrier_and_hour()["flights"].sum() == 336_776
    assert delays_per_carrier_and_window()["flights"].sum() == 336_776


def test_expected_results_may_cover_the_first_flights() -> None:
    assert delays_per_carrier_and_hour(1_000)["flights"].sum() == 1_000
    assert delays_per_carrier_and_window(1_000)["flights"].sum() == 1_000
