"""GetTelemetrySubscriptions, key 71, version 0 (KIP-714).

Behaviour:
- A client without an id gets one. The answer has the metrics of all subscriptions that match the
  client, and the shortest of their intervals.
- A second request within the interval is THROTTLING_QUOTA_EXCEEDED, unless the client's
  subscription or compression was refused, or the subscriptions have changed.
- Clients push counters as differences between two pushes, as with Kafka.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.telemetry.telemetry_state import ACCEPTED_CODECS
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

KEY = 71
MIN_VERSION = 0
MAX_VERSION = 0


def handle(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Answer with the metrics that the client shall push."""
    telemetry = context.services.telemetry
    error, instance = telemetry.subscribe(
        context.telemetry_client, context.connection_id, request.client_instance_id
    )
    if error is not ErrorCode.NONE:
        return GetTelemetrySubscriptionsResponse(error_code=error)
    requested = instance.requested
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.id,
        subscription_id=requested.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=requested.interval_ms,
        telemetry_max_bytes=telemetry.bytes_max,
        delta_temporality=True,
        requested_metrics=list(requested.metrics),
    )
