"""What can go wrong with a subscription or one of its consumers.

Rule: the class says what the caller can do about it, the message says which, expected and got.
Must not know: how an answer travels to a client.
"""


class SubscriptionsError(Exception):
    """Base of everything this room raises."""


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
