"""JoinGroup, key 11: join a classic group."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct, field


class JoinGroupRequestProtocol(Struct):
    """A protocol (assignor) that the member supports, with its metadata."""

    name: str = ""
    metadata: bytes = b""


class JoinGroupRequest(ApiMessage, key=11, versions="0-9", flexible="6+"):
    """A member, its timeouts and the protocols that it supports."""

    group_id: str = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Int32 = field(versions="1+", default=-1)
    member_id: str = ""
    group_instance_id: str | None = field(versions="5+", default=None)
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: str | None = field(versions="8+", default=None)


class JoinGroupResponseMember(Struct):
    """A member and its metadata, which the leader needs to assign."""

    member_id: str = ""
    group_instance_id: str | None = field(versions="5+", default=None)
    metadata: bytes = b""


class JoinGroupResponse(ApiMessage, key=11, versions="0-9", flexible="6+"):
    """Generation, protocol and, for the leader, all members."""

    throttle_time_ms: Int32 = field(versions="2+", default=0)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: str | None = field(versions="7+", default=None)
    protocol_name: str | None = field(nullable="7+", default="")
    leader: str = ""
    skip_assignment: bool = field(versions="9+", default=False)
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []


REQUEST = JoinGroupRequest
RESPONSE = JoinGroupResponse
