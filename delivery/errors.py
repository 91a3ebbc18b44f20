"""What can go wrong with an open partition and its subscriptions as one.

Rule: the class says what the caller can do about it, the message says which, expected and got. What
the packages below raise goes through as it is.
Must not know: how an answer travels to a client.
"""


class DeliveryError(Exception):
    """Base of everything this package raises by itself."""


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
