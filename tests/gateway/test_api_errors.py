"""Errors of requests: repeated names, and topics that do not exist."""

import pytest

from kledger.gateway.api_errors import (
    ApiError,
    check_not_repeated,
    code_and_message_of,
    find_topic,
    first_of_each,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerStore
from kledger.topics import InvalidConfig, InvalidTopicName, TopicRegistry, UnknownTopic


def test_first_of_each_keeps_the_order_and_counts() -> None:
    words = ["b1", "a1", "b2", "c1", "b3"]
    assert [("b1", 3), ("a1", 1), ("c1", 1)] == first_of_each(words, lambda word: word[0])


def test_refuse_repeated_lets_one_pass() -> None:
    check_not_repeated(1, "Duplicate topic name")
    with pytest.raises(ApiError, match="got 2 times") as caught:
        check_not_repeated(2, "Duplicate topic name")
    assert ErrorCode.INVALID_REQUEST == caught.value.code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ApiError(ErrorCode.POLICY_VIOLATION, "why"), ErrorCode.POLICY_VIOLATION),
        (InvalidConfig("why"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_refusal_of_gives_code_and_message(error: ApiError | InvalidConfig, code: int) -> None:
    assert (code, "why") == code_and_message_of(error)


async def test_find_topic_distinguishes_bad_names_from_unknown_ones() -> None:
    async with LedgerStore.open(None) as store:
        registry = await TopicRegistry.open(store)
        topic = await registry.create("t")
        assert topic is find_topic(registry, "t")
        for name, error in (("nowhere", UnknownTopic), ("a b", InvalidTopicName)):
            with pytest.raises(error):
                find_topic(registry, name)
