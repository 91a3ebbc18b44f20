"""The topics of subscriptions, and bytes that are none."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.gateway.coordinator.consumer.consumer_protocol_plan import (
    read_topics,
    subscribed_topics,
)


def subscription(*topics: str, version: int = 0, rest: bytes = b"") -> bytes:
    parts = [struct.pack(">hi", version, len(topics))]
    for topic in topics:
        encoded = topic.encode()
        parts += [struct.pack(">h", len(encoded)), encoded]
    return b"".join(parts) + rest


@given(st.lists(st.text(max_size=10), max_size=5), st.integers(0, 9), st.binary(max_size=9))
def test_topics_are_found_whatever_follows(topics: list[str], version: int, rest: bytes) -> None:
    assert read_topics(subscription(*topics, version=version, rest=rest)) == tuple(topics)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(garbage: bytes) -> None:
    topics = read_topics(garbage)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\x00\x00",
        subscription("t")[:-1],
        subscription("t")[:7],
        subscription("t", version=-1),
        struct.pack(">hi", 0, -1),
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hih", 0, 1, -5),
        struct.pack(">hih", 0, 1, 2) + b"\xff\xff",
    ],
)
def test_bytes_that_are_no_subscription_are_none(broken: bytes) -> None:
    assert read_topics(broken) is None


def test_one_unreadable_member_makes_the_whole_unknown() -> None:
    assert subscribed_topics([subscription("a"), subscription("a", "b")]) == frozenset({"a", "b"})
    assert subscribed_topics([]) == frozenset()
    assert subscribed_topics([subscription("a"), b"?"]) is None
