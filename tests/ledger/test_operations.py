"""An operation without an entry tells its caller once."""

import pytest

from kledger.ledger.errors import Fenced, LedgerError
from kledger.ledger.operations import Operation, RowsTicket, submitted
from kledger.ledger.position import EARLIEST


def told(ticket_of: list[LedgerError | None]) -> RowsTicket:
    return RowsTicket(ticket_of.append)


def operation(ticket: RowsTicket) -> Operation:
    return (ticket, EARLIEST, 0, b"", lambda position, error: None)


def test_a_confirmed_ticket_tells_no_error() -> None:
    heard: list[LedgerError | None] = []
    ticket = told(heard)
    ticket.confirm(operation(ticket))
    ticket.progressed()
    assert [None] == heard


def test_a_failed_ticket_tells_its_error_once() -> None:
    heard: list[LedgerError | None] = []
    ticket, error = told(heard), Fenced("gone")
    ticket.revert()
    ticket.fail(operation(ticket), error)
    ticket.settle()
    assert [error] == heard


async def test_submitted_waits_for_the_callback_and_raises_its_error() -> None:
    await submitted(lambda done: done(None))
    with pytest.raises(Fenced, match="gone"):
        await submitted(lambda done: done(Fenced("gone")))
