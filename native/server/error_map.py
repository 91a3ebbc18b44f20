"""Error map: translates the errors of the packages below into those of native clients.

Rule: an error without a row is a fault of the server and is raised unchanged.
Must not know: which call failed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import kledger.delivery.errors as delivery_errors
import kledger.named_topics.errors as named_topics_errors
import kledger.subscriptions.errors as subscriptions_errors
import kledger.topics.errors as topics_errors
from kledger.batches.errors import BatchError
from kledger.delivery.subscribed_partition import SubscribedPartition
from kledger.ledger import LedgerError
from kledger.native import errors
from kledger.runtime.error_table import ErrorTable

_ERRORS: ErrorTable[type[errors.KledgerError]] = ErrorTable(
    {
        topics_errors.UnknownTopic: errors.TopicNotFound,
        topics_errors.UnknownTopicId: errors.TopicNotFound,
        topics_errors.UnknownPartition: errors.TopicNotFound,
        topics_errors.TopicAlreadyExists: errors.TopicExists,
        topics_errors.UnknownNamespace: errors.NamespaceNotFound,
        topics_errors.NamespaceAlreadyExists: errors.NamespaceExists,
        topics_errors.NamespaceNotDeletable: errors.NotAllowed,
        topics_errors.TooManyCursors: errors.NotAllowed,
        topics_errors.TooManyNamespaces: errors.NotAllowed,
        topics_errors.PartitionTerminated: errors.TopicTerminated,
        topics_errors.CompactionRunning: errors.CompactionRunning,
        topics_errors.OffloadRunning: errors.OffloadInProgress,
        topics_errors.NoTier: errors.NotAllowed,
        topics_errors.StrategyNotAllowed: errors.NotAllowed,
        topics_errors.StrategyFailed: errors.Unavailable,
        topics_errors.TopicStorageFailed: errors.Unavailable,
        topics_errors.NotLeader: errors.NotLeaderForPartition,
        topics_errors.OutOfOrderSequence: errors.NotInSequence,
        # Every other error of a topic, a batch or a setting is a fault of the request.
        topics_errors.TopicsError: errors.InvalidArgument,
        subscriptions_errors.InvalidRequest: errors.InvalidArgument,
        subscriptions_errors.ConsumerBusy: errors.ConsumerBusy,
        subscriptions_errors.ConsumerAssign: errors.ConsumerAssign,
        subscriptions_errors.SubscriptionNotFound: errors.SubscriptionNotFound,
        subscriptions_errors.SubscriptionFenced: errors.SubscriptionFenced,
        subscriptions_errors.SubscriptionsError: errors.Unavailable,
        delivery_errors.PartitionDeleted: errors.TopicNotFound,
        delivery_errors.PartitionEnded: errors.Unavailable,
        delivery_errors.DeliveryError: errors.InvalidArgument,
        named_topics_errors.NamedTopicNotFound: errors.TopicNotFound,
        named_topics_errors.GroupDestroyed: errors.SubscriberGroupDestroyed,
        named_topics_errors.UnknownSubscriber: errors.SubscriberDisconnected,
        named_topics_errors.NotOwner: errors.IllegalState,
        named_topics_errors.FunctionNotAllowed: errors.NotAllowed,
        named_topics_errors.FunctionsUnavailable: errors.Unavailable,
        named_topics_errors.WrongArgument: errors.IllegalArgument,
        named_topics_errors.CapacityReached: errors.TopicFull,
        BatchError: errors.InvalidArgument,
        LedgerError: errors.Unavailable,
    }
)

_EXPECTED: tuple[type[BaseException], ...] = (errors.KledgerError, *_ERRORS.classes)


def native_error(error: BaseException) -> errors.KledgerError:
    """Return the native client's error for an error of the packages below."""
    found = _ERRORS.get(error, None)
    if found is None:
        raise error
    return found(str(error))


@contextmanager
def translating(partition: SubscribedPartition | None = None) -> Iterator[None]:
    """Translate errors of the packages below that are raised in the body.

    If the partition has ended, every error of the body becomes the error that ended it.
    """
    try:
        yield
    except _EXPECTED as error:
        if partition is not None and partition.end_error is not None:
            raise native_error(partition.end_error) from None
        if isinstance(error, errors.KledgerError):
            raise
        raise native_error(error) from error
