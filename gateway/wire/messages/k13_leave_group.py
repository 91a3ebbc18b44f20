"""LeaveGroup, key 13: leave a group."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct, field


class MemberIdentity(Struct):
    """A member that leaves; administrators give its instance id only."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = field(versions="5+", default=None)


class LeaveGroupRequest(ApiMessage, key=13, versions="0-5", flexible="4+"):
    """Members that leave; one member before version 3."""

    group_id: str = ""
    member_id: str = field(versions="0-2", default="")
    members: list[MemberIdentity] = field(versions="3+", default=[])


class MemberResponse(Struct):
    """Outcome for one member."""

    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: Int16 = 0


class LeaveGroupResponse(ApiMessage, key=13, versions="0-5", flexible="4+"):
    """Outcome for each member."""

    throttle_time_ms: Int32 = field(versions="1+", default=0)
    error_code: Int16 = 0
    members: list[MemberResponse] = field(versions="3+", default=[])


REQUEST = LeaveGroupRequest
RESPONSE = LeaveGroupResponse
