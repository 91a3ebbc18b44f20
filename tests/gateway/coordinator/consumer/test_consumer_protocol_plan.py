"""Bytes of members of the classic protocol: read with distrust, written in their format."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.gateway.coordinator.consumer.consumer_protocol_plan import (
    ConsumerProtocolSubscription,
    read_assignment,
    read_subscription,
    with_topic_ids,
    write_assignment,
)
from tests.gateway.coordinator.consumer_words import CatalogOfTest, assignment_of, subscribed

CATALOG = CatalogOfTest(t=4)
INTERESTS = {
    topic_metadata.name: topic_metadata
    for topic_metadata in map(CATALOG.find, CATALOG.names())
    if topic_metadata
}


def test_subscription_is_read() -> None:
    assert ConsumerProtocolSubscription(0, ("t",), ()) == read_subscription(
        subscribed("t", version=0)
    )
    owned = (("t", 0), ("t", 3))
    assert ConsumerProtocolSubscription(1, ("t",), owned) == read_subscription(
        subscribed("t", owned="03")
    )


def test_subscription_that_claims_a_version_without_its_fields_owns_nothing() -> None:
    short = subscribed("t", version=0)
    claimed = b"\x00\x01" + short[2:]
    assert ConsumerProtocolSubscription(1, ("t",), ()) == read_subscription(claimed)


def test_fields_of_later_versions_are_skipped() -> None:
    later = b"\x00\x03" + subscribed("t", owned="1")[2:] + bytes(6)
    assert ConsumerProtocolSubscription(3, ("t",), (("t", 1),)) == read_subscription(later)


@pytest.mark.parametrize("whole", [subscribed("t", owned="01"), assignment_of("t", "01")])
def test_bytes_that_end_early_are_something_else(whole: bytes) -> None:
    is_assignment = whole == assignment_of("t", "01")
    for size in range(len(whole)):
        part = whole[:size]
        if is_assignment:
            found = read_assignment(part)
            assert found is None or size in {0, *range(len(whole) - 4, len(whole))}
        else:
            subscription = read_subscription(part)
            without_owned = len(subscribed("t", version=0))
            assert subscription is None or size == without_owned


@pytest.mark.parametrize("value", [-2, -(2**31), 2**31 - 1])
def test_bytes_with_an_impossible_length_are_something_else(value: int) -> None:
    count = struct.pack(">i", value)
    name = struct.pack(">h", max(min(value, 2**15 - 1), -(2**15)))
    topics, user_data, owned = b"\0\0\0\1\0\1t", b"\xff" * 4, b"\0\0\0\1\0\1t\0\0\0\0"
    assert read_subscription(b"\0\1" + topics + user_data + owned) is not None
    for broken in (
        count,
        b"\0\0\0\1" + name + b"t",
        topics + count,
        topics + user_data + count,
        topics + user_data + b"\0\0\0\1" + name + b"t",
        topics + user_data + owned[:-4] + count,
    ):
        assert read_subscription(b"\0\1" + broken) is None, broken
    for broken in (count, b"\0\0\0\1" + name + b"t", owned[:-4] + count):
        assert read_assignment(b"\0\1" + broken) is None, broken


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_rejected(content: bytes) -> None:
    read_subscription(content)
    read_assignment(content)


def test_assignment_is_written_and_read() -> None:
    parts = CATALOG.parts("t", 0, 2)
    content = write_assignment(parts, 1, INTERESTS)
    assert assignment_of("t", "02") == content
    read = read_assignment(content)
    assert read is not None
    assert parts == with_topic_ids(read, CATALOG)
    assert () == read_assignment(b"")


def test_unknown_topics_and_partitions_are_left_out() -> None:
    assert assignment_of("t", "") == write_assignment(CATALOG.parts("t", 0), 1, {})
    named = (("t", 3), ("t", 4), ("t", -1), ("unknown", 0))
    assert CATALOG.parts("t", 3) == with_topic_ids(named, CATALOG)
