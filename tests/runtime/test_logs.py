"""A peer cannot flood the log, and what is left out is counted."""

import logging

import pytest

from kledger.runtime.logs import RateLimitedLog
from kledger.runtime.manual_clock import ManualClock


def test_lines_beyond_the_rate_are_counted_in_the_next_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    log = RateLimitedLog(logging.getLogger("limited"), 2, clock)
    for number in range(10):
        log.warning("bad frame %d", number)
    clock.advance(500)
    log.warning("bad frame %d", 10)
    assert [
        "bad frame 0",
        "bad frame 1",
        "bad frame 10 (8 more lines were left out before this one)",
    ] == [record.getMessage() for record in caplog.records]


def test_reserve_never_exceeds_one_second(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = RateLimitedLog(logging.getLogger("limited"), 2, clock)
    clock.advance(3_600_000)
    for _ in range(10):
        log.warning("again")
    assert 2 == len(caplog.records)
    assert 8 == log.suppressed_count


def test_fault_brings_its_traceback_once_and_counts_as_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = RateLimitedLog(logging.getLogger("limited"), 1, ManualClock())
    error = ValueError("broken")
    log.fault("closing connection of %s", "host", error=error)
    log.fault("closing connection of %s", "host", error=error)
    log.warning("bad frame")
    (record,) = caplog.records
    assert (logging.ERROR, "closing connection of host") == (record.levelno, record.getMessage())
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert 2 == log.suppressed_count
