"""PushTelemetry, key 72, version 0 (KIP-714).

Behaviour:
- The last push of each client is kept and can be looked at.
- Refused, in this order: reserved ids and whatever follows a terminating push (INVALID_REQUEST),
  pushes that come too early, unless they are terminating ones (THROTTLING_QUOTA_EXCEEDED), old
  subscriptions, unknown compression, too many bytes.
- What is no OTLP is INVALID_RECORD, which makes clients stop; what holds too much when it is
  decompressed is TELEMETRY_TOO_LARGE.
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
    """Take the metrics."""
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
