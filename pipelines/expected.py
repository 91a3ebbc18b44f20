"""The same results, computed by pandas from the original data, and their comparison.

Rule: nothing here has passed through Kafka or Spark. Counts and integer sums must be equal, means
within ``MEAN_TOLERANCE``. Must not know: how Spark computes them.
"""

import pandas as pd

from pipelines.flights import flights, table

MEAN_TOLERANCE = 1e-9

_AGGREGATES = {
    "flights": ("row", "size"),
    "departed": ("dep_delay", "count"),
    "dep_delay_sum": ("dep_delay", "sum"),
    "arr_delay_sum": ("arr_delay", "sum"),
    "distance_sum": ("distance", "sum"),
    "dep_delay_mean": ("dep_delay", "mean"),
    "arr_delay_mean": ("arr_delay", "mean"),
}


class Mismatch(AssertionError):
    """A result differs from what pandas computes; the message says where."""


def delays_per_carrier_and_hour(flights_max: int | None = None) -> pd.DataFrame:
    """Join the five tables and aggregate per carrier and hour of the day."""
    airports = table("airports").rename(columns={"faa": "dest", "alt": "dest_alt"})
    joined = (
        flights(flights_max)
        .merge(table("airlines")[["carrier", "name"]], on="carrier", how="left")
        .merge(airports[["dest", "dest_alt"]], on="dest", how="left")
        .merge(table("planes")[["tailnum", "seats"]], on="tailnum", how="left")
        .merge(table("weather")[["origin", "time_hour", "visib"]], how="left")
    )
    return joined.groupby(["carrier", "name", "hour"], as_index=False).agg(
        **_AGGREGATES,
        seats_sum=("seats", "sum"),
        dest_alt_sum=("dest_alt", "sum"),
        visib_mean=("visib", "mean"),
    )


def delays_per_carrier_and_window(flights_max: int | None = None) -> pd.DataFrame:
    """Aggregate per carrier and day of the scheduled departure (UTC)."""
    frame = flights(flights_max)
    start = pd.to_datetime(frame["time_hour"]).dt.tz_localize(None).dt.floor("D")
    return (
        frame.assign(window_start=start)
        .groupby(["window_start", "carrier"], as_index=False)
        .agg(**_AGGREGATES)
    )


def compare(what: str, expected: pd.DataFrame, got: pd.DataFrame, keys: list[str]) -> int:
    """Compare two tables row by row.

    Args:
        what: name of the result, for the message.
        expected: the table computed by pandas.
        got: the table that came back; more columns than expected are ignored.
        keys: columns that identify a row.

    Returns:
        How many values were compared.

    Raises:
        Mismatch: a row, count, sum or mean differs.
    """
    if len(expected) != len(got):
        raise Mismatch(f"{what}: expected {len(expected)} rows, got {len(got)}")
    left = expected.sort_values(keys).reset_index(drop=True)
    right = got[list(expected.columns)].sort_values(keys).reset_index(drop=True)
    for name in expected.columns:
        try:
            _compare_column(left[name], right[name], mean=name.endswith("_mean"))
        except AssertionError as error:
            raise Mismatch(f"{what}, column {name}: {error}") from error
    return len(left) * len(left.columns)


def _compare_column(expected: pd.Series, got: pd.Series, *, mean: bool) -> None:
    if expected.dtype == "object" or str(expected.dtype).startswith("datetime"):
        same = (expected == got) | (expected.isna() & got.isna())
        if not same.all():
            row = int((~same).idxmax())
            raise AssertionError(f"row {row}: expected {expected[row]!r}, got {got[row]!r}")
        return
    left, right = expected.astype("float64"), got.astype("float64")
    if str(expected.name).endswith("_sum"):
        # A sum over nothing is 0 in pandas and null in SQL; both say that there was no value.
        left, right = left.fillna(0), right.fillna(0)
    pd.testing.assert_series_equal(
        left,
        right,
        check_names=False,
        rtol=MEAN_TOLERANCE if mean else 0,
        atol=MEAN_TOLERANCE if mean else 0,
    )
