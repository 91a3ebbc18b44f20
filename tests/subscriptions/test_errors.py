"""What the ledger raises, in the words of subscriptions."""

import pytest

from kledger import ledger
from kledger.ledger import LedgerError
from kledger.subscriptions import errors
from kledger.subscriptions.errors import from_ledger, translating


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ledger.InvalidArgument, errors.InvalidRequest),
        (ledger.InvalidPosition, errors.InvalidRequest),
        (ledger.CursorNotFound, errors.SubscriptionNotFound),
        (ledger.ResetInProgress, errors.SubscriptionFenced),
        (ledger.AlreadyClosed, errors.SubscriptionClosed),
        (ledger.Fenced, errors.SubscriptionClosed),
        (ledger.Deleted, errors.SubscriptionClosed),
        (ledger.StorageFailed, errors.StorageFailed),
        (ledger.NonRecoverable, errors.StorageFailed),
        (LedgerError, errors.StorageFailed),
    ],
)
def test_every_ledger_error_has_a_translation(
    error: type[LedgerError], expected: type[errors.SubscriptionsError]
) -> None:
    found = from_ledger(error("what and why"))
    assert (expected, "what and why") == (type(found), str(found))


def test_errors_that_leave_a_block_are_translated() -> None:
    with pytest.raises(errors.StorageFailed, match="disk") as raised, translating():
        raise ledger.StorageFailed("disk")
    assert isinstance(raised.value.__cause__, ledger.StorageFailed)
    with pytest.raises(ZeroDivisionError), translating():
        raise ZeroDivisionError
