"""An outage is logged once, and so is its end."""

import logging

import pytest

from kledger.ledger.cluster import DatabaseOutage, DatabaseUnavailable


def test_an_outage_and_its_end_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outage = DatabaseOutage()
    outage.answered()
    for _ in range(2):
        outage.failed(DatabaseUnavailable("no answer"))
        outage.failed(DatabaseUnavailable("still no answer"))
        outage.answered()
        outage.answered()
    began = "the database of the cluster is unavailable: no answer"
    ended = "the database of the cluster is available again"
    assert [began, ended] * 2 == caplog.messages
