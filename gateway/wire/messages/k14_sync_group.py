"""SyncGroup, key 14: distribute the assignments of a generation."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct, field


class SyncGroupRequestAssignment(Struct):
    """What the leader assigned to one member."""

    member_id: str = ""
    assignment: bytes = b""


class SyncGroupRequest(ApiMessage, key=14, versions="0-5", flexible="4+"):
    """The leader's assignments; empty from followers."""

    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(versions="3+", default=None)
    protocol_type: str | None = field(versions="5+", default=None)
    protocol_name: str | None = field(versions="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(ApiMessage, key=14, versions="0-5", flexible="4+"):
    """The assignment of the requesting member."""

    throttle_time_ms: Int32 = field(versions="1+", default=0)
    error_code: Int16 = 0
    protocol_type: str | None = field(versions="5+", default=None)
    protocol_name: str | None = field(versions="5+", default=None)
    assignment: bytes = b""


REQUEST = SyncGroupRequest
RESPONSE = SyncGroupResponse
