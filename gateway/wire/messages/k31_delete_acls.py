"""DeleteAcls, key 31: delete ACLs."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct


class DeleteAclsFilter(Struct):
    """A filter of ACLs to delete; null and "any" match all."""

    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(ApiMessage, key=31, versions="1-3", flexible="2+"):
    """Filters of the ACLs to delete."""

    filters: list[DeleteAclsFilter] = []


class DeleteAclsMatchingAcl(Struct):
    """One ACL that matched, and whether it was deleted."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Struct):
    """Outcome for one filter."""

    error_code: Int16 = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsResponse(ApiMessage, key=31, versions="1-3", flexible="2+"):
    """Outcome for each filter, in the order of the request."""

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []


REQUEST = DeleteAclsRequest
RESPONSE = DeleteAclsResponse
