"""ListConfigResources, key 74: list the resources that have a configuration."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct, field


class ListConfigResourcesRequest(ApiMessage, key=74, versions="0-1", flexible="0+"):
    """The types to list; none means all."""

    resource_types: list[Int8] = field(versions="1+", default=[])


class ConfigResource(Struct):
    """One resource that has, or can have, a configuration."""

    resource_name: str = ""
    resource_type: Int8 = field(versions="1+", default=16)


class ListConfigResourcesResponse(ApiMessage, key=74, versions="0-1", flexible="0+"):
    """The resources of these types."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []


REQUEST = ListConfigResourcesRequest
RESPONSE = ListConfigResourcesResponse
