"""DescribeClientQuotas, key 48, versions 0-1 (KIP-546).

Behaviour:
- An entity must match every component, and if the request is strict, have no other types. Without
  components all entities match, or none if the request is strict.
- No match is an empty list, never null, which the Java client cannot read.
- Unknown types are UNSUPPORTED_VERSION, contradictions INVALID_REQUEST, as in Apache Kafka.
"""

from enum import IntEnum

from kledger.gateway.api_errors import ApiError
from kledger.gateway.quotas.quota_entities import ENTITY_TYPES
from kledger.gateway.quotas.quota_state import IP, Entity
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

KEY = 48
MIN_VERSION = 0
MAX_VERSION = 1


class Match(IntEnum):
    """How a component matches a part of an entity."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


def handle(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Answer with the quotas of the entities that match."""
    try:
        components = _checked(request.components)
    except ApiError as refused:
        return DescribeClientQuotasResponse(
            error_code=refused.code, error_message=str(refused), entries=None
        )
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in sorted(quotas.items())],
            )
            for entity, quotas in context.services.quotas.state.quotas.items()
            if _fits(entity, components, is_strict=request.strict)
        ],
    )


def _checked(components: list[ComponentData]) -> dict[str, ComponentData]:
    by_type = {component.entity_type: component for component in components}
    if len(by_type) < len(components):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "Entity type cannot appear more than once in the filter."
        )
    for kind, component in by_type.items():
        if kind == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind not in ENTITY_TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type not in tuple(Match):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown match type {component.match_type} of {kind}, expected 0 to 2",
            )
        if (component.match is None) == (component.match_type == Match.EXACT):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{kind}: expected a name with match type 0 and with no other",
            )
    if IP in by_type and len(by_type) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination: expected no other entity type beside ip",
        )
    return by_type


def _fits(entity: Entity, components: dict[str, ComponentData], *, is_strict: bool) -> bool:
    named = dict(entity)
    if not components.keys() <= named.keys() or (is_strict and components.keys() != named.keys()):
        return False
    return all(
        component.match_type == Match.ANY or named[kind] == component.match
        for kind, component in components.items()
    )
