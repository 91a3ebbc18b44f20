"""GetTelemetrySubscriptions, key 71: the metrics that a client has to push."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32


class GetTelemetrySubscriptionsRequest(ApiMessage, key=71, versions="0", flexible="0+"):
    """The client's instance id; zero if it has none yet."""

    client_instance_id: UUID = ZERO_UUID


class GetTelemetrySubscriptionsResponse(ApiMessage, key=71, versions="0", flexible="0+"):
    """The metrics to push, and the interval."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: UUID = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = []


REQUEST = GetTelemetrySubscriptionsRequest
RESPONSE = GetTelemetrySubscriptionsResponse
