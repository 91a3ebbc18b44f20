"""Every error of the packages below has a code of Kafka's."""

import inspect

import pytest

import kledger.topics.errors
from kledger import ledger
from kledger.gateway.api_errors import error_code_of, record_errors_of
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.topics.errors import InvalidRecord, TopicsError, UnknownTopic

TOPICS_ERRORS = [
    kind
    for _, kind in inspect.getmembers(kledger.topics.errors, inspect.isclass)
    if issubclass(kind, TopicsError) and kind is not TopicsError
]


@pytest.mark.parametrize("kind", TOPICS_ERRORS)
def test_every_error_of_topics_has_a_code(kind: type[TopicsError]) -> None:
    assert error_code_of(kind("text")) is not ErrorCode.UNKNOWN_SERVER_ERROR


def test_storage_errors_make_clients_try_again() -> None:
    assert ErrorCode.KAFKA_STORAGE_ERROR is error_code_of(ledger.StorageFailed("full"))
    assert ErrorCode.KAFKA_STORAGE_ERROR is error_code_of(ledger.Fenced("stopped"))


def test_terminated_topic_makes_producers_give_up() -> None:
    assert ErrorCode.POLICY_VIOLATION is error_code_of(
        kledger.topics.errors.PartitionTerminated("t")
    )


def test_unforeseen_error_is_unknown_server_error() -> None:
    assert ErrorCode.UNKNOWN_SERVER_ERROR is error_code_of(KeyError("x"))


def test_subclass_takes_the_code_of_its_base() -> None:
    class Stranger(UnknownTopic):
        """An error that the map does not know."""

    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION is error_code_of(Stranger("t"))


def test_record_errors_come_from_errors_that_have_them() -> None:
    assert ((1, "bad"),) == record_errors_of(InvalidRecord("text", ((1, "bad"),)))
    assert () == record_errors_of(UnknownTopic("t"))
