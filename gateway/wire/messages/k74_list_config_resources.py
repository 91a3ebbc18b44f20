"""ListConfigResources, key 74: which things have a configuration."""

from kledger.gateway.wire.schema import Int8, Int16, Int32, Message, Struct, field


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible="0+"):
    """Types to be listed; none stands for all."""

    resource_types: list[Int8] = field(versions="1+", default=[])


class ConfigResource(Struct):
    """One thing that has, or can have, a configuration."""

    resource_name: str = ""
    resource_type: Int8 = field(versions="1+", default=16)


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    """The things of these types."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []


REQUEST = ListConfigResourcesRequest
RESPONSE = ListConfigResourcesResponse
