"""The requests of a member, read by a codec that was written from the schemas."""

from importlib import import_module
from typing import Any

from benchmarks import group_wire as wire
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.header import decode_request_header

LEADER = wire.Joined(0, 5, "a", "a", ["a", "b"])


def read(stem: str, request: bytes) -> Any:
    """Decode a framed request."""
    frame = memoryview(request)[4:]
    header = decode_request_header(frame)
    message = import_module(f"kledger.gateway.wire.messages.{stem}").REQUEST
    return decode(message, header.api_version, frame, header.body_start)


def test_member_joins_beats_and_leaves_under_its_id() -> None:
    joining = read("k11_join_group", wire.join_request("g", "a"))
    assert (joining.group_id, joining.member_id, joining.group_instance_id) == ("g", "a", None)
    assert [each.name for each in joining.protocols] == ["range"]
    heartbeat = read("k12_heartbeat", wire.heartbeat_request("g", LEADER))
    assert (heartbeat.group_id, heartbeat.generation_id, heartbeat.member_id) == ("g", 5, "a")
    leaving = read("k13_leave_group", wire.leave_request("g", LEADER))
    assert [each.member_id for each in leaving.members] == ["a"]


def test_leader_assigns_to_all_and_a_follower_to_none() -> None:
    sync = read("k14_sync_group", wire.sync_request("g", LEADER))
    assert {each.member_id: each.assignment for each in sync.assignments} == {
        "a": wire.ASSIGNMENT, "b": wire.ASSIGNMENT,
    }  # fmt: skip
    follower = wire.sync_request("g", LEADER._replace(members=[]))
    assert not read("k14_sync_group", follower).assignments


def test_answer_to_a_join_is_read() -> None:
    messages = import_module("kledger.gateway.wire.messages.k11_join_group")
    members = [
        messages.JoinGroupResponseMember(member_id=each, group_instance_id=None, metadata=b"xyz")
        for each in LEADER.members
    ]
    response = messages.RESPONSE(
        generation_id=5, protocol_name="range", leader="a", member_id="a", members=members
    )
    assert wire.joined_of(encode(response, 5)) == LEADER
    assert wire.error_of(encode(response, 5)) == 0
