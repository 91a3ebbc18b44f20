"""Checks of subscribe options; the contract has a table of wrong values, too."""

import math

import pytest

from kledger.ledger import Position
from kledger.native.broker import RecordPosition
from kledger.native.client.subscribe_options import (
    RECEIVER_QUEUE_SIZE_MAX,
    DeadLetterPolicy,
    SubscribeOptions,
    check_name,
    check_number,
    check_settings,
    ranges_of,
    target_of,
    type_of,
)
from kledger.native.errors import InvalidArgument
from kledger.native.message_id import MessageId
from kledger.subscriptions.model import SubscriptionType


def test_types_by_name() -> None:
    assert SubscriptionType.KEY_SHARED is type_of("key_shared")
    with pytest.raises(InvalidArgument, match="exclusive, failover, shared, key_shared"):
        type_of("Shared")


@pytest.mark.parametrize("type_", list(SubscriptionType))
def test_shared_ones_are_two(type_: SubscriptionType) -> None:
    options = SubscribeOptions(subscription="s", type=type_, start="latest", name="c")
    assert ("shared" in type_) == options.is_shared


def test_targets_in_the_words_of_the_seam() -> None:
    id_ = MessageId(5, 120, 3, 1, batch_size=7)
    assert RecordPosition(Position(5, 120), 3) == target_of(id_)
    assert [0, "earliest", "latest"] == [target_of(each) for each in (0, "earliest", "latest")]
    for wrong in (-1, True, "first", None, 1.0, b"x", 1 << 63, ["earliest"]):
        with pytest.raises(InvalidArgument, match="expected a message id"):
            target_of(wrong)  # type: ignore[arg-type]


def test_ranges_come_in_order() -> None:
    assert None is ranges_of(None)
    assert ((0, 4), (5, 5), (9, 65_535)) == ranges_of([(9, 65_535), (0, 4), (5, 5)])
    for wrong in ([(1, 2, 3)], [("a", "b")], 7, [(3, 4), (1, 3)], [(0.5, 1)], [(0, math.inf)]):
        with pytest.raises(InvalidArgument, match="key_ranges"):
            ranges_of(wrong)  # type: ignore[arg-type]


def test_queue_has_a_limit() -> None:
    with pytest.raises(InvalidArgument, match="receiver_queue_size"):
        SubscribeOptions(
            subscription="s",
            type=SubscriptionType.SHARED,
            start="latest",
            name="c",
            receiver_queue_size=RECEIVER_QUEUE_SIZE_MAX + 1,
        )


def test_names_and_numbers() -> None:
    check_name("topic", "t")
    check_number("count", 0)
    for name in ("", None, 5, "\ud800"):
        with pytest.raises(InvalidArgument, match="topic: expected a name"):
            check_name("topic", name)
    for number in (-1, True, 1.0, "1", None, 1 << 63):
        with pytest.raises(InvalidArgument, match="count: expected a whole number from 0"):
            check_number("count", number)


def test_settings_are_text_for_text() -> None:
    assert {"retention.ms": "5"} == check_settings("config", {"retention.ms": "5"})
    for wrong in ({"retention.ms": 5}, {1: "x"}, {"a": None}, {"a": "\ud800"}, [("a", "b")], "x"):
        with pytest.raises(InvalidArgument, match="config: expected"):
            check_settings("config", wrong)


@pytest.mark.parametrize("letters", ["", 5])
def test_dead_letters_go_to_a_name(letters: str) -> None:
    with pytest.raises(InvalidArgument, match=r"dead_letter\.topic: expected a name"):
        SubscribeOptions(
            subscription="s",
            type=SubscriptionType.SHARED,
            start="latest",
            name="c",
            dead_letter=DeadLetterPolicy(1, letters),
        )
