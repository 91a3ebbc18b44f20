"""API errors: what is wrong with a request, or with one thing that it names, as Kafka's code.

Rule: the errors of the packages below are translated by one table. A storage error is
KAFKA_STORAGE_ERROR, after which clients retry; an error without any row is UNKNOWN_SERVER_ERROR.
One rejected thing never affects the others of its request.
Must not know: the messages of the APIs that use it.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import kledger.security.delegation_token_state as tokens
import kledger.topics.errors as topics_errors
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError
from kledger.runtime.error_table import ErrorTable
from kledger.topics import Topic, TopicRegistry, TopicsError, UnknownTopic
from kledger.topics.topic_names import check_name, resolve_name

T = TypeVar("T")

NO_AUTHORIZER = "No Authorizer is configured: every client may do everything"


class ApiError(Exception):
    """One thing that a request names is wrong; `code` is the answer for it."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


_CODES = ErrorTable(
    {
        topics_errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
        topics_errors.CorruptMessage: ErrorCode.CORRUPT_MESSAGE,
        topics_errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        topics_errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
        topics_errors.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        topics_errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        topics_errors.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
        topics_errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
        # Producers and consumers fail at once: a namespace does not come by waiting for it.
        topics_errors.UnknownNamespace: ErrorCode.INVALID_TOPIC_EXCEPTION,
        topics_errors.InvalidNamespaceName: ErrorCode.INVALID_TOPIC_EXCEPTION,  # no API has one
        topics_errors.NamespaceAlreadyExists: ErrorCode.TOPIC_ALREADY_EXISTS,  # likewise
        topics_errors.NamespaceNotDeletable: ErrorCode.POLICY_VIOLATION,  # likewise
        topics_errors.TooManyCursors: ErrorCode.POLICY_VIOLATION,
        topics_errors.TooManyNamespaces: ErrorCode.POLICY_VIOLATION,
        topics_errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
        topics_errors.InvalidRecord: ErrorCode.INVALID_RECORD,
        topics_errors.TopicAlreadyExists: ErrorCode.TOPIC_ALREADY_EXISTS,
        topics_errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
        topics_errors.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
        topics_errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
        topics_errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        topics_errors.DuplicateSequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        topics_errors.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
        topics_errors.CoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        topics_errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
        topics_errors.UnsupportedCompressionType: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        # Kafka has no code for it; of those that producers do not retry, this is "not allowed".
        topics_errors.PartitionTerminated: ErrorCode.POLICY_VIOLATION,
        topics_errors.CompactionRunning: ErrorCode.OPERATION_NOT_ATTEMPTED,  # no API compacts
        topics_errors.OffloadRunning: ErrorCode.OPERATION_NOT_ATTEMPTED,  # no API offloads
        topics_errors.NoTier: ErrorCode.POLICY_VIOLATION,  # likewise
        topics_errors.UnknownPosition: ErrorCode.INVALID_REQUEST,  # likewise
        topics_errors.StrategyNotAllowed: ErrorCode.POLICY_VIOLATION,  # likewise
        topics_errors.StrategyFailed: ErrorCode.OPERATION_NOT_ATTEMPTED,  # likewise
        tokens.DelegationTokensDisabled: ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        tokens.DelegationTokenNotFound: ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        tokens.DelegationTokenExpired: ErrorCode.DELEGATION_TOKEN_EXPIRED,
        tokens.DelegationTokenOwnerMismatch: ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
        tokens.TooManyDelegationTokens: ErrorCode.POLICY_VIOLATION,
        topics_errors.TopicStorageFailed: ErrorCode.KAFKA_STORAGE_ERROR,
        LedgerError: ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def error_code_of(error: BaseException) -> ErrorCode:
    """Return the code of an error of the packages below."""
    return _CODES.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)


def without_fencing(error: ErrorCode) -> ErrorCode:
    """Return the code for a client that does not know PRODUCER_FENCED (KIP-588)."""
    is_fenced = error is ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else error


def record_errors_of(error: BaseException) -> tuple[tuple[int, str], ...]:
    """Return (index, message) of the records at fault, if the error names them."""
    return getattr(error, "record_errors", ())


def code_and_message_of(error: ApiError | TopicsError) -> tuple[ErrorCode, str]:
    """Return the code and the message that answer for one thing."""
    code = error.code if isinstance(error, ApiError) else error_code_of(error)
    return code, str(error)


def first_of_each(things: Iterable[T], name_of: Callable[[T], Hashable]) -> list[tuple[T, int]]:
    """Return the first thing of each name, and how often the request has that name."""
    found: dict[Hashable, list[T]] = {}
    for thing in things:
        found.setdefault(name_of(thing), []).append(thing)
    return [(same[0], len(same)) for same in found.values()]


def check_not_repeated(count: int, mistake: str) -> None:
    """Reject a thing that its request names more than once.

    Args:
        count: how often the request names it.
        mistake: the words that Kafka has for it.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    if count > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{mistake}: expected once in the request, got {count} times"
        )


def find_topic(registry: TopicRegistry, name: str) -> Topic:
    """Return a topic.

    Raises:
        TopicsError: the name is not one, or there is no such topic.
    """
    topic = registry.get(name)
    if topic is None:
        check_name(resolve_name(name))
        raise UnknownTopic(f"The topic {name!r} does not exist.")
    return topic
