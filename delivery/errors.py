"""Errors of an open partition with its subscriptions.

Rule: the class says what the caller can do about it, the message says which, expected and got.
Errors of lower packages are passed on unchanged.
Must not know: how an error is sent to a client.
"""


class DeliveryError(Exception):
    """Base of the errors of this package."""


class RecordNotFound(DeliveryError):
    """The partition has no record with that offset, or at that position."""


class PartitionIndexOutOfRange(DeliveryError):
    """The topic does not have so many partitions."""


class PartitionEnded(DeliveryError):
    """Base of why an open partition has ended; an end is final."""


class PartitionDeleted(PartitionEnded):
    """Its topic was deleted."""


class PartitionClosed(PartitionEnded):
    """Its log was closed, for instance because it was idle; it can be opened again."""


class ServerStopping(PartitionEnded):
    """The server is stopping, and opens nothing any more."""
