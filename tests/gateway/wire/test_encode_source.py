"""What cannot be written says which field it was."""

from typing import Any

import pytest

from kledger.gateway.wire.codec import encode
from kledger.gateway.wire.encode_source import compile_encoder
from kledger.gateway.wire.errors import UnencodableMessage
from kledger.gateway.wire.messages.k01_fetch import FetchRequest, FetchTopic, ReplicaState
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kledger.gateway.wire.messages.k14_sync_group import SyncGroupResponse
from kledger.gateway.wire.schema import ApiMessage


def heartbeat(**values: Any) -> HeartbeatRequest:
    return HeartbeatRequest(**values)


def fetch_of(partitions: Any) -> FetchRequest:
    return FetchRequest(topics=[FetchTopic(partitions=partitions)])


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (heartbeat(group_id=None), 4, "group_id"),
        (heartbeat(group_id=b"bytes"), 4, "group_id"),
        (heartbeat(group_id="\ud800"), 4, "group_id"),
        (heartbeat(group_id="g" * 32768), 3, "group_id"),
        (heartbeat(group_id="g" * 32768), 4, "group_id"),
        (heartbeat(generation_id=2**31), 4, "generation_id to member_id"),
        (heartbeat(generation_id="1"), 0, "generation_id to member_id"),
        (MetadataRequest(topics=None), 0, "topics"),
        (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9, "topics[].name"),
        (SyncGroupResponse(assignment=None), 0, "assignment"),  # type: ignore[arg-type]
        (fetch_of(None), 4, "topics[].partitions"),
        (HeartbeatResponse(error_code=2**15), 0, "error_code"),
    ],
)
def test_value_that_does_not_fit_is_named(message: ApiMessage, version: int, field: str) -> None:
    with pytest.raises(UnencodableMessage) as caught:
        encode(message, version)
    assert (type(message).__name__, version) == (caught.value.message, caught.value.version)
    assert field == caught.value.field


def test_field_of_another_version_is_left_out() -> None:
    assert encode(HeartbeatRequest(), 0) == encode(HeartbeatRequest(group_instance_id="i"), 0)
    assert encode(HeartbeatRequest(), 3) != encode(HeartbeatRequest(group_instance_id="i"), 3)


def test_struct_in_a_tag_is_left_out_at_its_default() -> None:
    plain = encode(FetchRequest(), 15)
    assert plain == encode(FetchRequest(replica_state=ReplicaState()), 15)
    tagged = encode(FetchRequest(replica_state=ReplicaState(replica_id=3)), 15)
    assert plain[:-1] + b"\x01\x01\x0d" + b"\x00\x00\x00\x03" + b"\xff" * 8 + b"\x00" == tagged


def test_parts_are_appended_to_the_list() -> None:
    parts: list[bytes] = [b"before"]
    compile_encoder(HeartbeatResponse, 1)(HeartbeatResponse(error_code=27), parts)
    assert b"before\x00\x00\x00\x00\x00\x1b" == b"".join(parts)
