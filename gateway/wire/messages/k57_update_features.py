"""UpdateFeatures, key 57: change the levels of features."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct, field


class FeatureUpdateKey(Struct):
    """One feature and its new level; below 1 removes it."""

    feature: str = ""
    max_version_level: Int16 = 0
    allow_downgrade: bool = field(versions="0", default=False)
    upgrade_type: Int8 = field(versions="1+", default=1)


class UpdateFeaturesRequest(ApiMessage, key=57, versions="0-2", flexible="0+"):
    """New levels of features."""

    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: bool = field(versions="1+", default=False)


class UpdatableFeatureResult(Struct):
    """Outcome for one feature."""

    feature: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""


class UpdateFeaturesResponse(ApiMessage, key=57, versions="0-2", flexible="0+"):
    """Outcome of the whole; before version 2 also for each feature."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: list[UpdatableFeatureResult] = field(versions="0-1", default=[])


REQUEST = UpdateFeaturesRequest
RESPONSE = UpdateFeaturesResponse
