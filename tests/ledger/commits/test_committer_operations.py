"""An operation without an entry tells its caller once."""

import pytest

from kledger.ledger.commits.committer import Operation, RowsSubmitter, submitted
from kledger.ledger.errors import Fenced, LedgerError
from kledger.ledger.position import EARLIEST


def told(ticket_of: list[LedgerError | None]) -> RowsSubmitter:
    return RowsSubmitter(ticket_of.append)


def operation(ticket: RowsSubmitter) -> Operation:
    return (ticket, EARLIEST, 0, b"", lambda position, error: None)


def test_a_confirmed_ticket_tells_no_error() -> None:
    heard: list[LedgerError | None] = []
    ticket = told(heard)
    ticket.confirm(operation(ticket))
    ticket.group_confirmed()
    assert [None] == heard


def test_a_failed_ticket_tells_its_error_once() -> None:
    heard: list[LedgerError | None] = []
    ticket, error = told(heard), Fenced("gone")
    ticket.revert()
    ticket.fail(operation(ticket), error)
    ticket.resume()
    assert [error] == heard


async def test_submitted_waits_for_the_callback_and_raises_its_error() -> None:
    await submitted(lambda done: done(None))
    with pytest.raises(Fenced, match="gone"):
        await submitted(lambda done: done(Fenced("gone")))
