"""Bytes of a peer give a message or a MalformedMessage, within bounded memory."""

import gc
import tracemalloc
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kledger.gateway.wire.codec import decode, encode, encode_parts
from kledger.gateway.wire.errors import MalformedMessage, UnsupportedVersion
from kledger.gateway.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kledger.gateway.wire.messages.k01_fetch import FetchRequest
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kledger.gateway.wire.messages.k14_sync_group import SyncGroupResponse
from kledger.gateway.wire.messages.k16_list_groups import ListGroupsRequest
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsResponse
from kledger.gateway.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
)
from kledger.gateway.wire.primitives import ELEMENTS_MAX, encode_uvarint
from kledger.gateway.wire.schema import ApiMessage
from tests.gateway.wire.facts import messages, versions
from tests.gateway.wire.random_messages import sample, settle

quick = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
every_message = pytest.mark.parametrize("cls", messages(), ids=lambda cls: cls.__name__)

HEARTBEAT_V4 = b"\x02g\x00\x00\x00\x07\x02m\x00\x00"


def read(cls: type[ApiMessage], version: int, body: bytes) -> ApiMessage | MalformedMessage:
    """Decode; return the refusal instead of raising it."""
    try:
        return decode(cls, version, memoryview(body))
    except MalformedMessage as refusal:
        return refusal


def test_heartbeat_on_the_wire() -> None:
    message = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
    assert HEARTBEAT_V4 == encode(message, 4)
    assert b"\x00\x01g\x00\x00\x00\x07\x00\x01m\xff\xff" == encode(message, 3)
    assert b"\x00\x01g\x00\x00\x00\x07\x00\x01m" == encode(message, 0)


def test_position_counts_from_the_start_of_the_frame() -> None:
    frame = b"header" + HEARTBEAT_V4
    assert decode(HeartbeatRequest, 4, frame, 6).member_id == "m"
    with pytest.raises(MalformedMessage) as caught:
        decode(HeartbeatRequest, 4, frame[:-3], 6)
    assert (13, "member_id", "string") == (
        caught.value.position,
        caught.value.field,
        caught.value.expected,
    )
    assert "HeartbeatRequest v4, byte 13, member_id: expected string, got a length of 1 with 0" in (
        str(caught.value)
    )


@every_message
def test_truncated_at_every_byte(cls: type[ApiMessage]) -> None:
    for version in versions(cls):
        body = encode(settle(sample(cls), version), version)
        for size in range(len(body)):
            refusal = read(cls, version, body[:size])
            assert isinstance(refusal, MalformedMessage), (version, size)
            assert (cls.__name__, version) == (refusal.message, refusal.version)
            assert 0 <= refusal.position <= size
            assert refusal.field != "?"


@every_message
def test_trailing_bytes_are_ignored(cls: type[ApiMessage]) -> None:
    for version in versions(cls):
        message = settle(sample(cls), version)
        assert message == decode(cls, version, encode(message, version) + b"\xff" * 9)


@every_message
@quick
@given(data=st.data())
def test_garbage_ends_in_a_message_or_a_refusal(cls: type[ApiMessage], data: st.DataObject) -> None:
    garbage = data.draw(st.binary(max_size=60))
    for version in versions(cls):
        body = bytearray(encode(settle(sample(cls), version), version))
        read(cls, version, garbage)
        at = data.draw(st.integers(0, len(body)))
        body[at : at + 2] = garbage[:2]
        read(cls, version, bytes(body))
        read(cls, version, bytes(body[:at]) + garbage)


@pytest.mark.parametrize("filler", [b"\xff\xff\xff\xff\x0f", b"\x7f", b"\x7f\xff\xff\xff\xff"])
def test_huge_counts_take_no_memory(filler: bytes) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        for cls in messages():
            for version in {versions(cls)[0], versions(cls)[-1]}:
                body = encode(settle(sample(cls), version), version)
                read(cls, version, filler * 8)
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                for at in range(0, len(body), 17):
                    read(cls, version, body[:at] + filler * 8)
                assert tracemalloc.get_traced_memory()[1] - before < 100_000, (cls, version)
    finally:
        tracemalloc.stop()


def test_count_is_compared_with_what_its_items_need() -> None:
    """A 33-byte partition cannot be there five times in 100 bytes, so none of them is read."""
    body = encode(FetchRequest(), 12)
    at = body.index(b"\x01\x01\x01\x00")
    refusal = read(FetchRequest, 12, body[:at] + b"\x02\x02t\x06" + bytes(100))
    assert isinstance(refusal, MalformedMessage)
    assert ("topics[].partitions", "a count of 5 with 100 bytes left") == (
        refusal.field,
        refusal.got,
    )


def test_elements_of_one_message_are_limited() -> None:
    body = encode_uvarint(ELEMENTS_MAX + 2) + b"\x01" * (ELEMENTS_MAX + 1) + b"\x01\x00"
    refusal = read(ListGroupsRequest, 5, body)
    assert isinstance(refusal, MalformedMessage)
    assert "states_filter" == refusal.field


def test_bad_utf8_is_refused() -> None:
    refusal = read(HeartbeatRequest, 4, HEARTBEAT_V4.replace(b"m", b"\xff"))
    assert isinstance(refusal, MalformedMessage)
    assert ("member_id", "string in UTF-8", "byte 0xff at 0 of it") == (
        refusal.field,
        refusal.expected,
        refusal.got,
    )
    # Surrogates are not valid in UTF-8, though some encoders write them.
    assert isinstance(
        read(HeartbeatRequest, 4, b"\x04\xed\xa0\x80" + HEARTBEAT_V4[2:]), MalformedMessage
    )


def test_bad_utf8_next_to_records_is_refused() -> None:
    """A message with records is read from a view, so its strings take another way."""
    body = encode(ProduceRequest(transactional_id="t"), 9)
    refusal = read(ProduceRequest, 9, body.replace(b"t", b"\xfe"))
    assert isinstance(refusal, MalformedMessage)
    assert "transactional_id" == refusal.field


@pytest.mark.parametrize(
    ("cls", "version", "body", "field"),
    [
        (HeartbeatRequest, 4, b"\x00" + bytes(9), "group_id"),
        (HeartbeatRequest, 3, b"\xff\xff" + bytes(9), "group_id"),
        (HeartbeatRequest, 3, b"\x00\x01g\x00\x00\x00\x07\x00\x01m\xff\xfe", "group_instance_id"),
        (MetadataRequest, 0, b"\xff\xff\xff\xff", "topics"),
        (MetadataRequest, 1, b"\xff\xff\xff\xfe", "topics"),
        (MetadataRequest, 9, b"\x02\x00\x00" + bytes(9), "topics[].name"),
        (SyncGroupResponse, 0, b"\x00\x00\xff\xff\xff\xff", "assignment"),
        (SyncGroupResponse, 4, bytes(6) + b"\x00\x00", "assignment"),
    ],
)
def test_null_where_forbidden_is_refused(
    cls: type[ApiMessage], version: int, body: bytes, field: str
) -> None:
    refusal = read(cls, version, body)
    assert isinstance(refusal, MalformedMessage)
    assert field == refusal.field


def test_null_and_empty_topics_differ() -> None:
    assert None is decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics
    assert [] == decode(MetadataRequest, 1, b"\x00\x00\x00\x00").topics
    assert None is decode(MetadataRequest, 9, b"\x00\x01\x01\x01\x00").topics


def test_nullable_struct() -> None:
    body = encode(DescribeTopicPartitionsRequest(), 0)
    assert b"\x01\x00\x00\x07\xd0\xff\x00" == body
    assert None is decode(DescribeTopicPartitionsRequest, 0, body).cursor


def test_unknown_tags_are_stepped_over() -> None:
    """KIP-482: a newer client may send tags that this schema does not know."""
    tagged = HEARTBEAT_V4[:-1] + b"\x02" + b"\x00\x03abc" + b"\xb9\x60\x00"
    assert decode(HeartbeatRequest, 4, HEARTBEAT_V4) == decode(HeartbeatRequest, 4, tagged)
    known = encode(ApiVersionsResponse(finalized_features_epoch=5, zk_migration_ready=True), 3)
    assert known.endswith(b"\x02\x01\x08" + (5).to_bytes(8, "big") + b"\x03\x01\x01")
    between = known.replace(b"\x02\x01\x08", b"\x03\x01\x08").replace(
        b"\x03\x01\x01", b"\x09\x04wxyz\x03\x01\x01"
    )
    assert decode(ApiVersionsResponse, 3, known) == decode(ApiVersionsResponse, 3, between)


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\x00\x04abc",  # longer than what is left
        b"\x01\x00",  # no size
        b"\x02\x00\x00",  # one of two
        b"\xff\xff\xff\xff\x0f\x00\x00",  # four thousand million of them
        b"\x80\x80\x80\x80\x80\x00",  # a varint of six bytes
        b"\xff\xff\xff\xff\x7f",  # a varint of 35 bits
    ],
)
def test_broken_tags_are_refused(tags: bytes) -> None:
    refusal = read(HeartbeatRequest, 4, HEARTBEAT_V4[:-1] + tags)
    assert isinstance(refusal, MalformedMessage)
    assert "tagged fields" == refusal.field


def test_known_tag_with_a_wrong_size_is_refused() -> None:
    body = encode(ApiVersionsResponse(finalized_features_epoch=5), 3)
    refusal = read(ApiVersionsResponse, 3, body.replace(b"\x01\x01\x08", b"\x01\x01\x07") + b"\0")
    assert isinstance(refusal, MalformedMessage)
    assert "finalized_features_epoch" == refusal.field


def test_tagged_fields_at_default_are_left_out() -> None:
    assert b"\x00" == encode(FetchRequest(), 15)[-1:]
    assert encode(FetchRequest(), 15) == encode(FetchRequest(cluster_id=None), 15)
    assert encode(FetchRequest(), 15) != encode(FetchRequest(cluster_id=""), 15)


def test_long_varints() -> None:
    """A string of 128 bytes or more needs a second byte of length, one of 16384 a third."""
    for size in (126, 127, 128, 16382, 16383, 16384, 32767):
        message = HeartbeatRequest(group_id="g" * size, member_id="é" * (size // 2))
        assert message == decode(HeartbeatRequest, 4, encode(message, 4))


def test_string_longer_than_kafka_allows_is_refused() -> None:
    body = encode_uvarint(32769) + b"g" * 32768 + HEARTBEAT_V4[2:]
    refusal = read(HeartbeatRequest, 4, body)
    assert isinstance(refusal, MalformedMessage)
    assert "group_id" == refusal.field


def test_records_are_views_of_the_frame_and_bytes_are_copies() -> None:
    records = b"r" * 5000
    body = bytearray(
        encode(
            ProduceRequest(
                topic_data=[
                    TopicProduceData(
                        topic_id=UUID(int=1), partition_data=[PartitionProduceData(records=records)]
                    )
                ]
            ),
            13,
        )
    )
    frame = memoryview(body)
    read_records = decode(ProduceRequest, 13, frame).topic_data[0].partition_data[0].records
    assert isinstance(read_records, memoryview)
    body[body.index(b"rrr")] = ord("R")
    assert b"Rr" == bytes(read_records[:2])
    sync = bytearray(encode(SyncGroupResponse(assignment=b"abc"), 5))
    assignment = decode(SyncGroupResponse, 5, sync).assignment
    sync[:] = bytes(len(sync))
    assert b"abc" == assignment


def test_records_are_passed_on_without_a_copy() -> None:
    records = memoryview(b"r" * 5000)
    message = ProduceRequest(
        topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=records)])]
    )
    assert any(part is records for part in encode_parts(message, 9))


def test_version_that_does_not_exist() -> None:
    for version in (-1, 5):
        with pytest.raises(UnsupportedVersion, match="HeartbeatRequest has versions 0-4"):
            decode(HeartbeatRequest, version, b"")
        with pytest.raises(UnsupportedVersion, match="asked for"):
            encode(HeartbeatResponse(), version)
