"""DeleteGroups, key 42: delete groups."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct


class DeleteGroupsRequest(ApiMessage, key=42, versions="0-2", flexible="2+"):
    """Groups to delete."""

    groups_names: list[str] = []


class DeletableGroupResult(Struct):
    """Outcome for one group."""

    group_id: str = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(ApiMessage, key=42, versions="0-2", flexible="2+"):
    """Outcome for each group."""

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []


REQUEST = DeleteGroupsRequest
RESPONSE = DeleteGroupsResponse
