"""ApiVersions, key 18, versions 0-4.

Behaviour:
- The answer is made from the list of handlers, so the served keys are advertised.
- A version that is not served is answered too, in the layout of version 0 with error 35 and the
  versions of this key; the client retries with one of them. The router does that.
- The response header is always version 0, as the client does not know the server's versions yet.
- The keys of client metrics (KIP-714) are advertised while there is a subscription, as a client
  that sees them requests an id at once; Apache Kafka advertises them with a plug-in. They are
  always served.

Version notes:
- v3 is flexible and has the client's software name and version (KIP-511), which must match Kafka's
  pattern, or the answer is INVALID_REQUEST. The latest ones apply to the connection.
- v3 features (KIP-584): transaction.version 2 is finalized, so that clients that know it let
  Produce add partitions to transactions (KIP-890); other clients add them as before.
  metadata.version is that of Kafka 4.3.
- v4 shows supported features whose minimum is 0, which older clients cannot read (KIP-1022).
"""

import re
from functools import cache

from kledger.gateway.features import FEATURES, FEATURES_EPOCH
from kledger.gateway.peer import UNKNOWN_SOFTWARE
from kledger.gateway.request_context import RequestContext
from kledger.gateway.served_apis import HANDLERS, HANDLERS_BY_KEY
from kledger.gateway.wire.codec import encode
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

KEY = 18
MIN_VERSION = 0
MAX_VERSION = 4

SOFTWARE_SINCE = 3
MINIMUM_0_SINCE = 4
TELEMETRY = (71, 72)
"""GetTelemetrySubscriptions and PushTelemetry."""
SOFTWARE_PATTERN = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse | bytes:
    """Answer with the served keys and features."""
    if context.version >= SOFTWARE_SINCE and not (
        SOFTWARE_PATTERN.fullmatch(request.client_software_name)
        and SOFTWARE_PATTERN.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    context.peer.software_name = request.client_software_name or UNKNOWN_SOFTWARE
    context.peer.software_version = request.client_software_version or UNKNOWN_SOFTWARE
    is_subscribed = bool(context.services.client_metrics.subscriptions())
    return _encoded(context.version, has_telemetry=is_subscribed)


def unsupported_version() -> ApiVersionsResponse:
    """Return the answer, in version 0, to a version that is not served."""
    spec = HANDLERS_BY_KEY[KEY]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersion(api_key=KEY, min_version=spec.advertised_min, max_version=spec.max_version)
        ],
    )


@cache
def _encoded(version: int, *, has_telemetry: bool) -> bytes:
    served = [
        ApiVersion(api_key=spec.key, min_version=spec.advertised_min, max_version=spec.max_version)
        for spec in HANDLERS
        if has_telemetry or spec.key not in TELEMETRY
    ]
    supported = [
        SupportedFeatureKey(name=feature.name, min_version=feature.min, max_version=feature.max)
        for feature in FEATURES
        if feature.min > 0 or version >= MINIMUM_0_SINCE
    ]
    finalized = [
        FinalizedFeatureKey(
            name=feature.name, min_version_level=feature.level, max_version_level=feature.level
        )
        for feature in FEATURES
    ]
    response = ApiVersionsResponse(
        api_keys=served,
        supported_features=supported,
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=finalized,
    )
    return encode(response, version)
