"""IncrementalAlterConfigs, key 44: change single settings."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct


class AlterableConfig(Struct):
    """One change: set (0), delete (1), append (2) or subtract (3)."""

    name: str = ""
    config_operation: Int8 = 0
    value: str | None = ""


class AlterConfigsResource(Struct):
    """A resource and the changes to it."""

    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


class IncrementalAlterConfigsRequest(ApiMessage, key=44, versions="0-1", flexible="1+"):
    """Settings to set, delete, append to or subtract from."""

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResourceResponse(Struct):
    """Outcome for one resource."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""


class IncrementalAlterConfigsResponse(ApiMessage, key=44, versions="0-1", flexible="1+"):
    """Outcome for each resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


REQUEST = IncrementalAlterConfigsRequest
RESPONSE = IncrementalAlterConfigsResponse
