"""ListGroups, key 16: list groups."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct, field


class ListGroupsRequest(ApiMessage, key=16, versions="0-5", flexible="3+"):
    """Filters by state and type; empty means all."""

    states_filter: list[str] = field(versions="4+", default=[])
    types_filter: list[str] = field(versions="5+", default=[])


class ListedGroup(Struct):
    """One group of the list."""

    group_id: str = ""
    protocol_type: str = ""
    group_state: str = field(versions="4+", default="")
    group_type: str = field(versions="5+", default="")


class ListGroupsResponse(ApiMessage, key=16, versions="0-5", flexible="3+"):
    """Groups that match."""

    throttle_time_ms: Int32 = field(versions="1+", default=0)
    error_code: Int16 = 0
    groups: list[ListedGroup] = []


REQUEST = ListGroupsRequest
RESPONSE = ListGroupsResponse
