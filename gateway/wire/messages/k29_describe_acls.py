"""DescribeAcls, key 29: list ACLs."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct


class DescribeAclsRequest(ApiMessage, key=29, versions="1-3", flexible="2+"):
    """A filter of ACLs; null and "any" match all."""

    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Struct):
    """One ACL: whether a principal may perform an operation."""

    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Struct):
    """ACLs of one resource."""

    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = []


class DescribeAclsResponse(ApiMessage, key=29, versions="1-3", flexible="2+"):
    """The ACLs that match."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = []


REQUEST = DescribeAclsRequest
RESPONSE = DescribeAclsResponse
