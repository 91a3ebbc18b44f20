"""DescribeGroups, key 15: describe classic groups."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct, field


class DescribeGroupsRequest(ApiMessage, key=15, versions="0-6", flexible="5+"):
    """Groups to describe."""

    groups: list[str] = []
    include_authorized_operations: bool = field(versions="3+", default=False)


class DescribedGroupMember(Struct):
    """One member, its client and its assignment."""

    member_id: str = ""
    group_instance_id: str | None = field(versions="4+", default=None)
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(Struct):
    """One group; up to version 5 an unknown group is Dead, without an error."""

    error_code: Int16 = 0
    error_message: str | None = field(versions="6+", default=None)
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Int32 = field(versions="3+", default=-2147483648)


class DescribeGroupsResponse(ApiMessage, key=15, versions="0-6", flexible="5+"):
    """State, protocol and members of each group."""

    throttle_time_ms: Int32 = field(versions="1+", default=0)
    groups: list[DescribedGroup] = []


REQUEST = DescribeGroupsRequest
RESPONSE = DescribeGroupsResponse
