"""Rows of offsets: what is written is what is read, and keys of groups never mix."""

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger import UnreadableRow
from kledger.offsets import CommittedOffset, TopicPartition
from kledger.offsets.records import (
    decode_key,
    decode_pending_key,
    decode_value,
    encode_key,
    encode_pending_key,
    encode_value,
)

names = st.text(max_size=20)
topic_partitions = st.builds(TopicPartition, topic=names, partition=st.integers(0, 2**31 - 1))
numbers = st.integers(-(2**63), 2**63 - 1)
offsets = st.builds(
    CommittedOffset,
    offset=numbers,
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=30),
    commit_ms=numbers,
    expire_ms=numbers,
    topic_id=st.uuids(),
)


@given(names, topic_partitions)
def test_key_survives(group: str, topic_partition: TopicPartition) -> None:
    assert decode_key(encode_key(group, topic_partition)) == (group, topic_partition)


@given(st.integers(0, 2**63 - 1), names, topic_partitions)
def test_key_of_a_pending_offset_survives(
    producer_id: int, group: str, topic_partition: TopicPartition
) -> None:
    key = encode_pending_key(group, (producer_id, topic_partition))
    assert decode_pending_key(key) == (group, (producer_id, topic_partition))


@given(offsets)
def test_value_survives(committed: CommittedOffset) -> None:
    assert decode_value(encode_value(committed)) == committed


def test_layout_does_not_change_by_accident() -> None:
    topic_id = uuid.UUID(int=7)
    committed = CommittedOffset(1, 2, "m", 3, -1, topic_id)

    assert (
        encode_key("g", TopicPartition("t", 5)) == b"offset\x01\x00\x01g\x00\x01t\x00\x00\x00\x05"
    )
    assert encode_value(committed) == struct.pack(">Bqiqq", 1, 1, 2, 3, -1) + topic_id.bytes + b"m"


def test_row_of_a_newer_program_is_refused() -> None:
    with pytest.raises(UnreadableRow):
        decode_value(b"\x02" + bytes(60))
