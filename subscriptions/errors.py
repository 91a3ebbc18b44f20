"""What can go wrong with a subscription or one of its consumers.

Rule: the class says what the caller can do about it, the message says which, expected and got.
Errors of the ledger are translated here, by one table; those without a row are StorageFailed.
Must not know: how an answer travels to a client.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from kledger.ledger import (
    AlreadyClosed,
    CursorNotFound,
    Fenced,
    InvalidArgument,
    InvalidPosition,
    LedgerError,
    ResetInProgress,
)
from kledger.runtime.error_table import ErrorTable


class SubscriptionsError(Exception):
    """Base of everything this package raises."""


class InvalidRequest(SubscriptionsError):
    """An argument is invalid; trying again does not help."""


class ConsumerBusy(SubscriptionsError):
    """The subscription has a consumer that excludes this one, or is of another type."""


class ConsumerAssign(SubscriptionsError):
    """The key ranges of a consumer overlap those of another one."""


class SubscriptionNotFound(SubscriptionsError):
    """The partition has no subscription of that name."""


class SubscriptionFenced(SubscriptionsError):
    """Its position is being set: connecting again soon will work."""


class SubscriptionClosed(SubscriptionsError):
    """The subscription, or its partition, is closed or deleted."""


class SubscriptionFailed(SubscriptionsError):
    """A fault has closed the subscription: connecting again opens it anew."""


class StorageFailed(SubscriptionsError):
    """The ledger could not read or write."""


_ERRORS: ErrorTable[type[SubscriptionsError]] = ErrorTable(
    {
        InvalidArgument: InvalidRequest,
        InvalidPosition: InvalidRequest,
        CursorNotFound: SubscriptionNotFound,
        ResetInProgress: SubscriptionFenced,
        AlreadyClosed: SubscriptionClosed,
        Fenced: SubscriptionClosed,
    }
)


def from_ledger(error: LedgerError) -> SubscriptionsError:
    """Translate an error of the ledger."""
    return _ERRORS.get(error, StorageFailed)(str(error))


@contextmanager
def translating() -> Iterator[None]:
    """Translate errors of the ledger that leave the block."""
    try:
        yield
    except LedgerError as error:
        raise from_ledger(error) from error
