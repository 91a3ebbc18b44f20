"""Error map: translates the errors of the rooms below into those of native clients.

Rule: one row per class; a class without a row takes that of its nearest base. An error without any
row is a fault of the server and is raised unchanged.
Must not know: which call failed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import kledger.delivery.errors as delivery_errors
import kledger.subscriptions.errors as subscriptions_errors
import kledger.topics.errors as topics_errors
from kledger.batches.errors import BatchError
from kledger.delivery.subscribed_partition import SubscribedPartition
from kledger.ledger import LedgerError
from kledger.native import errors

_KINDS: dict[type[BaseException], type[errors.KledgerError]] = {
    topics_errors.UnknownTopic: errors.TopicNotFound,
    topics_errors.UnknownTopicId: errors.TopicNotFound,
    topics_errors.UnknownPartition: errors.TopicNotFound,
    topics_errors.TopicAlreadyExists: errors.TopicExists,
    topics_errors.PartitionTerminated: errors.TopicTerminated,
    topics_errors.TopicStorageFailed: errors.Unavailable,
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
    BatchError: errors.InvalidArgument,
    LedgerError: errors.Unavailable,
}
TRANSLATED = (
    topics_errors.TopicsError, subscriptions_errors.SubscriptionsError,
    delivery_errors.DeliveryError, BatchError, LedgerError,
)  # fmt: skip
"""The bases of all classes that have a row."""


def native_error(error: BaseException) -> errors.KledgerError:
    """Return the native client's error for an error of the rooms below."""
    for kind in type(error).__mro__:
        if (found := _KINDS.get(kind)) is not None:
            return found(str(error))
    raise error


@contextmanager
def translating(partition: SubscribedPartition | None = None) -> Iterator[None]:
    """Translate errors of the packages below that are raised in the body.

    If the partition has ended, every error of the body becomes the error that ended it.
    """
    try:
        yield
    except (errors.KledgerError, *TRANSLATED) as error:
        if partition is not None and partition.end_error is not None:
            raise native_error(partition.end_error) from None
        if isinstance(error, errors.KledgerError):
            raise
        raise native_error(error) from error
