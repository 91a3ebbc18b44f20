"""Error map: the errors of the ledger as errors of this room.

Rule: one row per class; a class without a row of its own takes that of its nearest base.
Must not know: which call failed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from kledger import ledger
from kledger.ledger import LedgerError
from kledger.subscriptions import errors

_KINDS: dict[type, type[errors.SubscriptionsError]] = {
    ledger.InvalidArgument: errors.InvalidRequest,
    ledger.InvalidPosition: errors.InvalidRequest,
    ledger.CursorNotFound: errors.SubscriptionNotFound,
    ledger.ResetInProgress: errors.SubscriptionFenced,
    ledger.AlreadyClosed: errors.SubscriptionClosed,
    ledger.Fenced: errors.SubscriptionClosed,
    LedgerError: errors.StorageFailed,
}


def subscription_error(error: LedgerError) -> errors.SubscriptionsError:
    """Return the error of this room for an error of the ledger."""
    found = next(_KINDS[kind] for kind in type(error).__mro__ if kind in _KINDS)
    return found(str(error))


@contextmanager
def translating() -> Iterator[None]:
    """Translate errors of the ledger that leave the block."""
    try:
        yield
    except LedgerError as error:
        raise subscription_error(error) from error
