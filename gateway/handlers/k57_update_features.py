"""UpdateFeatures, key 57, versions 0-2 (KIP-584).

Behaviour:
- The levels of features are fixed. The current level is accepted; any other one is
  INVALID_UPDATE_VERSION, also where Apache Kafka would raise or lower it.
- An unknown upgrade type is INVALID_UPDATE_VERSION, too.
- One refused feature refuses the whole request; the message names it.

Version notes:
- Up to v1 each accepted feature gets an entry (KIP-1022).
"""

from kledger.gateway.api_errors import ApiError
from kledger.gateway.features import FEATURES
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

KEY = 57
MIN_VERSION = 0
MAX_VERSION = 2

ENTRIES_UNTIL = 1
UPGRADE_TYPES = (1, 2, 3)
"""Upgrade, safe downgrade, unsafe downgrade."""


def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Refuse a request that would change a level."""
    try:
        for update in request.feature_updates:
            _check(update)
    except ApiError as refused:
        return UpdateFeaturesResponse(error_code=refused.code, error_message=str(refused))
    response = UpdateFeaturesResponse(error_message=None)
    if context.version <= ENTRIES_UNTIL:
        response.results = [
            UpdatableFeatureResult(feature=update.feature, error_message=None)
            for update in request.feature_updates
        ]
    return response


def _check(update: FeatureUpdateKey) -> None:
    if update.upgrade_type not in UPGRADE_TYPES:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{update.feature}: expected upgrade type 1, 2 or 3, got {update.upgrade_type}",
        )
    levels = {feature.name: feature.level for feature in FEATURES}
    if update.feature not in levels:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{update.feature}: expected one of {', '.join(levels)}",
        )
    if update.max_version_level != levels[update.feature]:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{update.feature}: expected level {levels[update.feature]}, which is fixed here, "
            f"got {update.max_version_level}",
        )
