"""Quota entities: the users, client ids and addresses of quota requests, checked.

Rule: the same requests are refused as by Apache Kafka. An address has one spelling, so one quota.
Must not know: how quotas are charged or stored.
"""

from collections.abc import Iterable
from math import isfinite
from typing import Final, Protocol

from kledger.gateway.api_errors import ApiError
from kledger.gateway.configs.address_limits import is_address
from kledger.gateway.quotas.quota_state import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Entity,
)
from kledger.gateway.wire.error_codes import ErrorCode

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
INTEGER_QUOTA_MAX: Final = {
    PRODUCER_BYTE_RATE: LONG_MAX,
    CONSUMER_BYTE_RATE: LONG_MAX,
    CONNECTION_CREATION_RATE: INT_MAX,
}
"""Quotas that are whole numbers, and the largest."""
CLIENT_QUOTAS = frozenset(
    {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE}
)
ADDRESS_QUOTAS = frozenset({CONNECTION_CREATION_RATE})
ENTITY_TYPES = (CLIENT_ID, IP, USER)


class EntityComponent(Protocol):
    """The fields of an entity's part that all requests share."""

    entity_type: str
    entity_name: str | None


class QuotaChange(Protocol):
    """The fields of a change that all requests share."""

    key: str
    value: float
    remove: bool


def parse_entity(parts: Iterable[EntityComponent]) -> Entity:
    """Return the entity of the parts; of two parts of one type the later one counts, as in Kafka.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    named = {part.entity_type: part.entity_name for part in parts}
    if not named:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in named.items():
        if kind not in ENTITY_TYPES:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unhandled client quota entity type: {kind}, expected {' or '.join(ENTITY_TYPES)}",
            )
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    if IP in named:
        _check_address(named)
    return tuple(sorted(named.items()))


def _check_address(named: dict[str, str | None]) -> None:
    if len(named) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid quota entity combination: IP entity should not be combined with others",
        )
    name = named[IP]
    if name is not None and not is_address(name):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{name} is not a valid IP: expected an address in its usual form",
        )


def altered_quotas(
    entity: Entity, quotas: dict[str, float], changes: Iterable[QuotaChange]
) -> dict[str, float]:
    """Return the quotas of an entity after changes.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    known = ADDRESS_QUOTAS if entity[0][0] == IP else CLIENT_QUOTAS
    after, seen = dict(quotas), set[str]()
    for change in changes:
        if change.key in seen:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.key} stands twice in the request")
        seen.add(change.key)
        if change.remove:
            after.pop(change.key, None)
        else:
            after[change.key] = _checked(change, known)
    return after


def _checked(change: QuotaChange, known: frozenset[str]) -> float:
    if change.key not in known:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid configuration key {change.key}, expected {', '.join(sorted(known))}",
        )
    largest = INTEGER_QUOTA_MAX.get(change.key)
    is_whole = largest is None or (isfinite(change.value) and change.value % 1 == 0)
    # The largest long is no float: the next one is what clients send for it.
    if not 0 < change.value <= float(largest or LONG_MAX) or not is_whole:
        kind = "a number" if largest is None else f"no fractional value, and at most {largest}"
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Quota {change.key} must be greater than 0: expected {kind}, got {change.value:g}",
        )
    return change.value
