"""Error map: what went wrong below, as Kafka's error code.

Rule: one row per class; a class without a row of its own takes that of its nearest base. A fault of
the storage is KAFKA_STORAGE_ERROR, on which producers and consumers try again; what has no row at
all is UNKNOWN_SERVER_ERROR.
Must not know: which request failed.
"""

import kledger.topics.errors as topics_errors
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError

_CODES: dict[type[BaseException], ErrorCode] = {
    topics_errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    topics_errors.CorruptMessage: ErrorCode.CORRUPT_MESSAGE,
    topics_errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    topics_errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    topics_errors.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    topics_errors.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    topics_errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    topics_errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    topics_errors.InvalidRecord: ErrorCode.INVALID_RECORD,
    topics_errors.TopicAlreadyExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    topics_errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    topics_errors.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    topics_errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
    topics_errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    topics_errors.DuplicateSequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    topics_errors.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    topics_errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    topics_errors.UnsupportedCompressionType: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    # Kafka has no word for it; of those that make a producer give up, this one says "not allowed".
    topics_errors.PartitionTerminated: ErrorCode.POLICY_VIOLATION,
    topics_errors.TopicStorageFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    LedgerError: ErrorCode.KAFKA_STORAGE_ERROR,
}


def error_code_of(error: BaseException) -> ErrorCode:
    """Return the code for an error of the rooms below."""
    for kind in type(error).__mro__:
        code = _CODES.get(kind)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


def without_fencing(error: ErrorCode) -> ErrorCode:
    """Return what a client is told that does not know PRODUCER_FENCED (KIP-588)."""
    is_fenced = error is ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else error


def record_errors_of(error: BaseException) -> tuple[tuple[int, str], ...]:
    """Return (index, message) of the records at fault, if the error names them."""
    return getattr(error, "record_errors", ())
