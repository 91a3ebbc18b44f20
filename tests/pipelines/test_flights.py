"""The flights' records: nothing is lost or changed on the way into JSON."""

import json

import pandas as pd
import pytest

from pipelines.flights import (
    KEY_COLUMNS,
    flight_records,
    flights,
    flights_from,
    table,
    table_records,
)


def test_flight_record_carries_row_key_headers_and_event_time() -> None:
    frame = table("flights").head(1)

    record = next(flight_records(frame, "a-client"))

    row = json.loads(record.value)
    assert record.key == b"UA"
    assert record.headers == [("client", b"a-client"), ("table", b"flights")]
    assert record.timestamp_ms == pd.Timestamp("2013-01-01T10:00:00Z").value // 1_000_000
    assert set(row) == set(frame.columns)
    assert row["dep_delay"] == 2
    assert row["row"] == 0


def test_missing_values_become_null_and_whole_floats_integers() -> None:
    cancelled = table("flights").query("dep_time.isna()").head(1)

    row = json.loads(next(flight_records(cancelled, "x")).value)

    assert row["dep_time"] is None
    assert isinstance(row["sched_dep_time"], int)


def test_three_airports_hold_every_flight_once() -> None:
    parts = pd.concat([flights_from(origin) for origin in ("EWR", "JFK", "LGA")])

    assert sorted(parts["row"]) == list(range(336_776))


def test_first_flights_are_divided_among_the_airports() -> None:
    parts = pd.concat([flights_from(origin, 1_000) for origin in ("EWR", "JFK", "LGA")])

    assert list(flights(1_000)["row"]) == sorted(parts["row"]) == list(range(1_000))


@pytest.mark.parametrize("name", KEY_COLUMNS)
def test_small_table_records_hold_every_row(name: str) -> None:
    records = list(table_records(name, "x", timestamp_ms=7))

    assert len(records) == len(table(name))
    assert [json.loads(record.value)["row"] for record in records] == list(range(len(records)))
    assert {record.timestamp_ms for record in records} == {7}
