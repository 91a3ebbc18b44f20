"""What can go wrong with a topic or a partition; one class for each answer of Kafka's protocol.

Rule: the class decides the answer; the message says what, which, expected and got. Errors of one
partition are values in results; a call that has one outcome raises them.
Must not know: error codes; the gateway maps the classes to them.
"""

from kledger.batches import errors as batch_errors

RecordErrors = tuple[tuple[int, str], ...]


class TopicsError(Exception):
    """Base of everything this package raises or returns as an error."""


class OffsetOutOfRange(TopicsError):
    """The offset lies below the log start or beyond the log end."""


class CorruptMessage(TopicsError):
    """A batch was damaged, or cannot be a batch."""


class UnknownTopic(TopicsError):
    """There is no topic of that name."""


class UnknownTopicId(TopicsError):
    """There is no topic with that id."""


class UnknownPartition(TopicsError):
    """The topic has no such partition, or the partition was deleted."""


class NotLeader(TopicsError):
    """Another broker leads the partition.

    Attributes:
        leader: its id.
    """

    def __init__(self, message: str, leader: int = -1) -> None:
        super().__init__(message)
        self.leader = leader


class MessageTooLarge(TopicsError):
    """The batch is larger than the topic's max.message.bytes."""


class InvalidTopicName(TopicsError):
    """The name breaks Kafka's rules, or collides with another one."""


class UnknownNamespace(InvalidTopicName):
    """There is no such namespace, so it can have no topic, and no policies."""


class InvalidNamespaceName(TopicsError):
    """The name breaks the rules for namespaces."""


class NamespaceAlreadyExists(TopicsError):
    """A namespace of that name exists."""


class NamespaceNotDeletable(TopicsError):
    """The namespace has topics, or is the one that always exists."""


class TooManyCursors(TopicsError):
    """The topic has as many durable cursors as it can have."""


class TooManyNamespaces(TopicsError):
    """The store has as many namespaces as it can have."""


class InvalidTimestamp(TopicsError):
    """A timestamp or its type is not allowed by the topic.

    Attributes:
        record_errors: (index of the record, message), for the records at fault.
    """

    def __init__(self, message: str, record_errors: RecordErrors = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidRecord(TopicsError):
    """A batch breaks a rule for produced batches.

    Attributes:
        record_errors: (index of the record, message), for the records at fault.
    """

    def __init__(self, message: str, record_errors: RecordErrors = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class TopicAlreadyExists(TopicsError):
    """A topic of that name exists."""


class InvalidPartitions(TopicsError):
    """That number of partitions is not possible."""


class InvalidReplicationFactor(TopicsError):
    """There are not that many replicas; there is one node."""


class InvalidConfig(TopicsError):
    """A configuration name is unknown or its value is not allowed."""


class OutOfOrderSequence(TopicsError):
    """The batch does not follow the last one of its producer."""


class DuplicateSequence(TopicsError):
    """The batch was appended before, and its offset is no longer known."""


class InvalidProducerEpoch(TopicsError):
    """A newer instance of the producer has written since."""


class CoordinatorFenced(TopicsError):
    """A coordinator under a newer epoch has ended a transaction of the producer."""


class InvalidTransactionState(TopicsError):
    """The batch does not fit the state of its producer's transaction."""


class UnsupportedCompressionType(TopicsError):
    """The codec is unknown, or too new for the request that carried it."""


class PartitionTerminated(TopicsError):
    """The partition was terminated: it refuses records for good."""


class CompactionRunning(TopicsError):
    """A compaction of the partition runs; another one can begin when it has ended."""


class StrategyNotAllowed(TopicsError):
    """The server's settings do not allow the compaction strategy of a topic, or do not any more."""


class StrategyFailed(TopicsError):
    """A compaction strategy cannot be imported, or has raised an error; nothing has changed."""


class NoTier(TopicsError):
    """The server has no tier, so nothing can be offloaded."""


class OffloadRunning(TopicsError):
    """An offload of the topic runs; another one can begin when it has ended."""


class UnknownPosition(TopicsError):
    """The partition has no such entry, and it is not the next one to be written."""


class TopicStorageFailed(TopicsError):
    """The storage did not accept the change, and nothing of it was stored; a retry is safe."""


def from_batch_error(error: batch_errors.BatchError) -> TopicsError:
    """Translate an error of `batches`."""
    match error:
        case batch_errors.InvalidBatch():
            return InvalidRecord(str(error), error.record_errors)
        case batch_errors.TimestampNotAllowed():
            return InvalidTimestamp(str(error), error.record_errors)
        case batch_errors.BatchTooLarge():
            return MessageTooLarge(str(error))
        case batch_errors.UnsupportedCompression():
            return UnsupportedCompressionType(str(error))
        case _:
            return CorruptMessage(str(error))
