"""Failed logins are limited and counted by address."""

import pytest

import kledger.gateway.net.failed_logins_state as module
from kledger.gateway.net.failed_logins_state import (
    FAILURES_MAX,
    FAILURES_PER_SECOND,
    FailedLogins,
    FailedLoginsLine,
)


def test_an_address_with_many_failures_waits_and_others_do_not() -> None:
    logins = FailedLogins()
    for _ in range(FAILURES_MAX):
        assert logins.admits("a", 0)
        logins.failed("a", "wrong", 0)
    assert not logins.admits("a", 0)
    assert logins.admits("b", 0)
    wait_ms = 1_000 // FAILURES_PER_SECOND
    assert logins.admits("a", wait_ms)
    logins.failed("a", "wrong", wait_ms)
    assert not logins.admits("a", wait_ms)


def test_the_failures_of_an_address_are_one_line() -> None:
    logins = FailedLogins()
    for address, reason in (("a", "one"), ("b", "two"), ("a", "three")):
        logins.failed(address, reason, 0)
    assert [FailedLoginsLine("b", 1, "two"), FailedLoginsLine("a", 2, "three")] == sorted(
        logins.take_lines(), key=lambda line: line.count
    )
    assert [] == logins.take_lines()
    logins.failed("a", "four", 5)
    assert [FailedLoginsLine("a", 1, "four")] == logins.take_lines()


def test_the_addresses_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood from many addresses takes no more memory; the one that failed longest ago goes."""
    monkeypatch.setattr(module, "ADDRESSES_MAX", 2)
    logins = FailedLogins()
    for address in ("a", "b", "a", "c"):
        logins.failed(address, "wrong", 0)
    assert {"a": 2, "c": 1} == {line.address: line.count for line in logins.take_lines()}
