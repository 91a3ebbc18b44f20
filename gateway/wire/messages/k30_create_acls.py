"""CreateAcls, key 30: add access rules."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct


class AclCreation(Struct):
    """One rule to be added."""

    resource_type: Int8 = 0
    resource_name: str = ""
    resource_pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(ApiMessage, key=30, versions="1-3", flexible="2+"):
    """Rules to be added."""

    creations: list[AclCreation] = []


class AclCreationResult(Struct):
    """Outcome for one rule."""

    error_code: Int16 = 0
    error_message: str | None = ""


class CreateAclsResponse(ApiMessage, key=30, versions="1-3", flexible="2+"):
    """Outcome for each rule, in the order of the request."""

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []


REQUEST = CreateAclsRequest
RESPONSE = CreateAclsResponse
