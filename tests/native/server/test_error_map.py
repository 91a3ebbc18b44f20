"""Every error of the rooms below has words for native clients."""

import inspect

import pytest

import kledger.batches.errors
import kledger.subscriptions.errors
import kledger.topics.errors
from kledger import ledger
from kledger.native import errors
from kledger.native.server.error_map import native_error, translating

KNOWN = [
    kind
    for room in (
        kledger.batches.errors,
        ledger,
        kledger.subscriptions.errors,
        kledger.topics.errors,
    )
    for _, kind in inspect.getmembers(room, inspect.isclass)
    if issubclass(kind, Exception)
]


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_error_is_translated_with_its_message(kind: type[Exception]) -> None:
    told = native_error(kind("what, expected and got"))
    assert isinstance(told, errors.KledgerError)
    assert "what, expected and got" == str(told)


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (kledger.topics.errors.UnknownPartition("x"), errors.TopicNotFound),
        (kledger.topics.errors.PartitionTerminated("x"), errors.TopicTerminated),
        (kledger.topics.errors.UnreadableRow("x"), errors.Unavailable),
        (kledger.topics.errors.CorruptMessage("x"), errors.InvalidArgument),
        (kledger.subscriptions.errors.ConsumerBusy("x"), errors.ConsumerBusy),
        (kledger.subscriptions.errors.SubscriptionFenced("x"), errors.SubscriptionFenced),
        (kledger.subscriptions.errors.SubscriptionClosed("x"), errors.Unavailable),
        (ledger.StorageFailed("x"), errors.Unavailable),
        (kledger.batches.errors.CorruptBatch("x"), errors.InvalidArgument),
    ],
)
def test_the_nearest_class_decides(raised: Exception, told: type[errors.KledgerError]) -> None:
    with pytest.raises(told) as caught, translating():
        raise raised
    assert told is type(caught.value)
    assert raised is caught.value.__cause__


def test_a_fault_of_ours_goes_through_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), translating():
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        native_error(ZeroDivisionError())
