"""PushTelemetry, key 72, version 0 (KIP-714).

Behaviour:
- The last push of each client is kept; `kledger client-metrics` shows it.
- Refused, in this order: reserved ids and pushes after a terminating one (INVALID_REQUEST), pushes
  within the interval, unless they are terminating (THROTTLING_QUOTA_EXCEEDED), old subscriptions,
  unknown compression, too many bytes.
- Data that is no OTLP is INVALID_RECORD, after which clients stop pushing; data that is too large
  when decompressed is TELEMETRY_TOO_LARGE.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k72_push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)

KEY = 72
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Check and keep the metrics."""
    error = await context.services.telemetry.push(
        context.telemetry_client,
        context.connection_id,
        request.client_instance_id,
        subscription_id=request.subscription_id,
        is_terminating=request.terminating,
        codec=request.compression_type,
        data=request.metrics,
    )
    return PushTelemetryResponse(error_code=error)
