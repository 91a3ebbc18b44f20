"""DescribeConfigs, key 32: read configurations."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct, field


class DescribeConfigsResource(Struct):
    """A topic (2) or broker (4) and the requested settings."""

    resource_type: Int8 = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = []


class DescribeConfigsRequest(ApiMessage, key=32, versions="1-4", flexible="4+"):
    """Resources and the names of the requested settings; null means all."""

    resources: list[DescribeConfigsResource] = []
    include_synonyms: bool = False
    include_documentation: bool = field(versions="3+", default=False)


class DescribeConfigsSynonym(Struct):
    """Another source that has a value for the setting."""

    name: str = ""
    value: str | None = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Struct):
    """One setting with its value, source and type."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: Int8 = field(versions="3+", default=0)
    documentation: str | None = field(versions="3+", default="")


class DescribeConfigsResult(Struct):
    """Settings of one resource."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(ApiMessage, key=32, versions="1-4", flexible="4+"):
    """Settings with source, type and synonyms."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []


REQUEST = DescribeConfigsRequest
RESPONSE = DescribeConfigsResponse
