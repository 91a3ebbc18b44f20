"""Audit lines: what a client sends cannot break them, and there are never too many."""

import logging

import pytest

from kledger.ledger.testing import ManualClock
from kledger.security import audit as audit_module
from kledger.security.acl_state import Operation, ResourceType
from kledger.security.audit import REFUSALS_PER_SECOND, AuditLog, quoted
from kledger.security.principal import Principal

MALLORY = Principal("mallory")


def refuse(audit: AuditLog, name: str = "t", address: str = "10.0.0.7") -> None:
    audit.refused(MALLORY, address, Operation.WRITE, ResourceType.TOPIC, name)


def test_refusal_names_principal_address_and_resource(caplog: pytest.LogCaptureFixture) -> None:
    refuse(AuditLog(ManualClock(0)), "orders")
    expected = (
        'refused principal="User:mallory" address="10.0.0.7" operation=WRITE '
        'resource=TOPIC:"orders"'
    )
    assert [expected] == caplog.messages


@pytest.mark.parametrize(
    "name", ['a" operation=READ resource=TOPIC:"b', "a\nrefused principal=", "\x1b[31m", "\u2028"]
)
def test_a_name_stays_one_field_of_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    refuse(AuditLog(ManualClock(0)), name)
    (line,) = caplog.messages
    assert line.isascii()
    assert line.isprintable()
    assert 1 == line.replace('\\"', "").count('resource=TOPIC:"')


def test_long_texts_are_cut() -> None:
    assert len(quoted("a" * 100_000)) < 300


def test_refusals_of_one_client_are_limited_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    audit = AuditLog(clock)
    for _ in range(100):
        refuse(audit)
    refuse(audit, address="10.0.0.8")
    assert REFUSALS_PER_SECOND + 1 == len(caplog.messages)
    clock.advance(1_000)
    refuse(audit)
    assert f"({100 - REFUSALS_PER_SECOND} more lines" in caplog.messages[-1]


def test_clients_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "REFUSED_CLIENTS_MAX", 3)
    audit = AuditLog(ManualClock(0))
    for number in range(10):
        refuse(audit, address=f"10.0.0.{number}")
    assert 3 == len(audit._refusals)


def test_changes_are_never_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    audit = AuditLog(ManualClock(0))
    for _ in range(100):
        audit.changed("created rule", MALLORY, "::1", resource="TOPIC:\n", count=1)
    assert 100 == len(caplog.messages)
    expected = 'created rule principal="User:mallory" address="::1" resource="TOPIC:\\n" count=1'
    assert expected == caplog.messages[0]
