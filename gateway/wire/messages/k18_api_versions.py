"""ApiVersions, key 18: API keys and versions that are served."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct, field


class ApiVersionsRequest(ApiMessage, key=18, versions="0-4", flexible="3+"):
    """The client's software name and version."""

    client_software_name: str = field(versions="3+", default="")
    client_software_version: str = field(versions="3+", default="")


class ApiVersion(Struct):
    """The served versions of one key."""

    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    """Levels of a feature that the broker supports."""

    name: str = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    """The finalized levels of a feature."""

    name: str = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(ApiMessage, key=18, versions="0-4", flexible="3+"):
    """Served version ranges and features."""

    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Int32 = field(versions="1+", default=0)
    supported_features: list[SupportedFeatureKey] = field(versions="3+", tag=0, default=[])
    finalized_features_epoch: Int64 = field(versions="3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(versions="3+", tag=2, default=[])
    zk_migration_ready: bool = field(versions="3+", tag=3, default=False)


REQUEST = ApiVersionsRequest
RESPONSE = ApiVersionsResponse
