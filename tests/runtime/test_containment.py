"""A fault closes the unit that it happened in, is logged and counted, and reaches no other unit."""

import logging

import pytest

from kledger.runtime.containment import Containment, NamedUnit, unit_of
from kledger.runtime.manual_clock import ManualClock
from tests.contained import Contained


def fails() -> None:
    raise ValueError("broken")


def counted(containment: Containment) -> dict[str, int]:
    return containment.metrics.snapshot()


def test_fault_closes_its_unit_with_a_logged_reason_and_a_count(contained: Contained) -> None:
    containment, closed = Containment(ManualClock()), list[str]()
    unit = NamedUnit("connection", "of 10.0.0.1", lambda: closed.append("closed"))
    containment.run(unit, fails)
    with containment.guarding(unit):
        fails()
    assert ["closed", "closed"] == closed
    assert {'contained_faults{unit="connection"}': 2} == counted(containment)
    assert ["a fault here closes connection of 10.0.0.1"] * 2 == contained.messages
    assert ["broken", "broken"] == [str(error) for error in contained.errors]


def test_call_that_does_not_fail_closes_nothing() -> None:
    containment, seen = Containment(ManualClock()), list[int]()
    unit = NamedUnit("connection", "of 10.0.0.1", fails)
    containment.run(unit, seen.append, 7)
    with containment.guarding(unit):
        seen.append(8)
    assert ([7, 8], {}) == (seen, counted(containment))


def test_unit_that_cannot_be_closed_is_logged_and_stops_no_other(contained: Contained) -> None:
    Containment(ManualClock()).run(NamedUnit("partition", "orders-0", fails), fails)
    assert [
        "a fault here closes partition orders-0",
        "partition orders-0 could not be closed after it",
    ] == contained.messages


def test_tracebacks_of_a_fault_that_repeats_are_limited(
    contained: Contained, caplog: pytest.LogCaptureFixture
) -> None:
    containment = Containment(ManualClock())
    for _ in range(1_000):
        containment.run(unit_of(fails, "timer"), fails)
    assert {'contained_faults{unit="timer"}': 1_000} == counted(containment)
    assert 10 == len([each for each in caplog.records if each.levelno == logging.ERROR])


def test_unit_of_a_callback_is_called_like_it() -> None:
    assert ("timer", "fails") == (unit_of(fails, "timer").unit_kind, unit_of(fails, "").unit_name)
