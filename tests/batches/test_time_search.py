"""The record of a time in one batch."""

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.header import set_log_append_time
from kledger.batches.reader import RecordTime
from kledger.batches.time_search import (
    first_since,
    newest_since,
    oldest_by_headers,
    oldest_of,
)
from tests.batches.words import NOW_MS

TIMES = (5, 1, 9, 9, 2)


def timed(*times: int, codec: int = 0) -> bytearray:
    return build_batch([NewRecord(b"v", timestamp=NOW_MS + each) for each in times], codec=codec)


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize(
    ("start", "time", "expected"),
    [
        (0, 0, 0),
        (0, 6, 2),
        (1, 0, 1),
        (1, 2, 2),
        (3, 9, 3),
        (4, 3, None),
        (0, 10, None),
        (5, 0, None),
    ],
)
def test_first_record_not_before_a_time(
    start: int, time: int, expected: int | None, codec: int
) -> None:
    found = first_since(timed(*TIMES, codec=codec), start, NOW_MS + time)
    assert expected == (None if found is None else found.offset)


@pytest.mark.parametrize(("start", "expected"), [(0, (2, 9)), (3, (3, 9)), (4, (4, 2)), (5, None)])
def test_first_of_the_newest_records(start: int, expected: tuple[int, int] | None) -> None:
    found = newest_since(timed(*TIMES), start)
    assert found == (None if expected is None else RecordTime(expected[0], NOW_MS + expected[1]))


def test_a_record_that_cannot_be_read_ends_the_batch() -> None:
    damaged = timed(1, 2, 3)[:-3]
    assert RecordTime(1, NOW_MS + 2) == first_since(damaged, 0, NOW_MS + 2)
    assert first_since(damaged, 0, NOW_MS + 3) is None
    assert RecordTime(1, NOW_MS + 2) == newest_since(damaged, 0)


@pytest.mark.parametrize("codec", [0, 4])
def test_smallest_time_of_batches(codec: int) -> None:
    batches = timed(7, 8, codec=codec) + timed(*TIMES, codec=codec) + timed(6, codec=codec)
    assert NOW_MS + 1 == oldest_of(batches)
    assert NOW_MS + 5 == oldest_by_headers(batches)
    assert None is oldest_of(b"") is oldest_by_headers(b"")


def test_smallest_time_where_the_log_gives_the_times() -> None:
    batch = timed(*TIMES)
    set_log_append_time(batch, NOW_MS + 70)
    assert NOW_MS + 70 == oldest_of(batch) == oldest_by_headers(batch)


def test_smallest_time_of_records_that_cannot_be_read_is_that_of_the_header() -> None:
    batch = timed(*TIMES)
    batch[61:] = b"\xff" * (len(batch) - 61)
    assert NOW_MS + 1 == oldest_of(timed(3, 1) + batch)
    assert NOW_MS + 5 == oldest_of(batch)
