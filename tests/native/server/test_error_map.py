"""Every error of the packages below has words for native clients."""

import inspect

import pytest

import kledger.batches.errors
import kledger.delivery.errors
import kledger.subscriptions.errors
import kledger.topics.errors
from kledger import ledger
from kledger.native import errors
from kledger.native.server.error_map import native_error, translating
from tests.delivery.partitions import partition_directory

KNOWN = [
    kind
    for package in (
        kledger.batches.errors,
        kledger.delivery.errors,
        ledger,
        kledger.subscriptions.errors,
        kledger.topics.errors,
    )
    for _, kind in inspect.getmembers(package, inspect.isclass)
    if issubclass(kind, Exception)
]


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_error_is_translated_with_its_message(kind: type[Exception]) -> None:
    error = native_error(kind("what, expected and got"))
    assert isinstance(error, errors.KledgerError)
    assert "what, expected and got" == str(error)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (kledger.topics.errors.UnknownPartition("x"), errors.TopicNotFound),
        (kledger.topics.errors.PartitionTerminated("x"), errors.TopicTerminated),
        (kledger.topics.errors.TopicStorageFailed("x"), errors.Unavailable),
        (kledger.topics.errors.CorruptMessage("x"), errors.InvalidArgument),
        (kledger.subscriptions.errors.ConsumerBusy("x"), errors.ConsumerBusy),
        (kledger.subscriptions.errors.SubscriptionFenced("x"), errors.SubscriptionFenced),
        (kledger.subscriptions.errors.SubscriptionClosed("x"), errors.Unavailable),
        (kledger.delivery.errors.PartitionDeleted("x"), errors.TopicNotFound),
        (kledger.delivery.errors.PartitionClosed("x"), errors.Unavailable),
        (kledger.delivery.errors.RecordNotFound("x"), errors.InvalidArgument),
        (ledger.StorageFailed("x"), errors.Unavailable),
        (kledger.batches.errors.CorruptBatch("x"), errors.InvalidArgument),
    ],
)
def test_the_nearest_class_decides(raised: Exception, expected: type[errors.KledgerError]) -> None:
    with pytest.raises(expected) as caught, translating():
        raise raised
    assert expected is type(caught.value)
    assert raised is caught.value.__cause__


def test_an_unexpected_exception_is_raised_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), translating():
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        native_error(ZeroDivisionError())


async def test_errors_after_the_end_of_a_partition_are_its_end() -> None:
    async with partition_directory() as (opened, partitions):
        await opened.log()
        partition = await partitions.open("orders", 0)
        closed = kledger.subscriptions.errors.SubscriptionClosed("the cursor is closed")
        unavailable = pytest.raises(errors.Unavailable, match="the cursor is closed")
        with unavailable, translating(partition):
            raise closed
        with pytest.raises(errors.NotAllowed), translating(partition):
            raise errors.NotAllowed("x")
        await opened.registry.delete("orders")
        for error in (closed, errors.NotAllowed("x")):
            not_found = pytest.raises(errors.TopicNotFound, match="orders was deleted")
            with not_found as caught, translating(partition):
                raise error
            assert caught.value.__cause__ is None
