"""PushTelemetry, key 72: push the metrics of a client."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32


class PushTelemetryRequest(ApiMessage, key=72, versions="0", flexible="0+"):
    """Metrics in the OpenTelemetry format."""

    client_instance_id: UUID = ZERO_UUID
    subscription_id: Int32 = 0
    terminating: bool = False
    compression_type: Int8 = 0
    metrics: bytes = b""


class PushTelemetryResponse(ApiMessage, key=72, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


REQUEST = PushTelemetryRequest
RESPONSE = PushTelemetryResponse
