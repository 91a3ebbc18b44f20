"""AlterConfigs, key 33: replace configurations."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct


class AlterableConfig(Struct):
    """One setting and its new value; null resets it."""

    name: str = ""
    value: str | None = ""


class AlterConfigsResource(Struct):
    """A resource and its whole configuration."""

    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


class AlterConfigsRequest(ApiMessage, key=33, versions="0-2", flexible="2+"):
    """The whole configuration of each resource."""

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResourceResponse(Struct):
    """Outcome for one resource."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""


class AlterConfigsResponse(ApiMessage, key=33, versions="0-2", flexible="2+"):
    """Outcome for each resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


REQUEST = AlterConfigsRequest
RESPONSE = AlterConfigsResponse
