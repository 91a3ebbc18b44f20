"""CreateAcls, key 30: add ACLs."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct


class AclCreation(Struct):
    """One ACL to add."""

    resource_type: Int8 = 0
    resource_name: str = ""
    resource_pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(ApiMessage, key=30, versions="1-3", flexible="2+"):
    """ACLs to add."""

    creations: list[AclCreation] = []


class AclCreationResult(Struct):
    """Outcome for one ACL."""

    error_code: Int16 = 0
    error_message: str | None = ""


class CreateAclsResponse(ApiMessage, key=30, versions="1-3", flexible="2+"):
    """Outcome for each ACL, in the order of the request."""

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []


REQUEST = CreateAclsRequest
RESPONSE = CreateAclsResponse
