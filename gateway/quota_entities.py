"""Quota entities: what quotas are about, as requests name it, checked.

Rule: what Apache Kafka refuses is refused; so is what it has and is not enforced here: quotas of
addresses (`ip`) and of changes to topics (`controller_mutation_rate`).
Must not know: how quotas are charged or stored.
"""

from collections.abc import Iterable
from math import isfinite
from typing import Protocol

from gateway.quota_state import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Entity,
)
from gateway.refusals import Refused
from gateway.wire.error_codes import ErrorCode

WHOLE = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE})
QUOTAS = WHOLE | {REQUEST_PERCENTAGE}
ENTITY_TYPES = (CLIENT_ID, USER)
IP = "ip"
LONG_MAX = 2**63 - 1


class NamedPart(Protocol):
    """What parts of entities in requests have in common."""

    entity_type: str
    entity_name: str | None


class Change(Protocol):
    """What changes of quotas in requests have in common."""

    key: str
    value: float
    remove: bool


def entity_of(parts: Iterable[NamedPart]) -> Entity:
    """Return what the parts name; of two parts of one type the later one counts, as in Kafka.

    Raises:
        Refused: INVALID_REQUEST.
    """
    named = {part.entity_type: part.entity_name for part in parts}
    if not named:
        raise Refused(ErrorCode.INVALID_REQUEST, "expected an entity, got none")
    for kind, name in named.items():
        if kind not in ENTITY_TYPES:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"expected an entity of type {' or '.join(ENTITY_TYPES)}, got {kind!r}",
            )
        if name == "":
            raise Refused(ErrorCode.INVALID_REQUEST, f"{kind}: expected a name, got none")
    return tuple(sorted(named.items()))


def changed(quotas: dict[str, float], changes: Iterable[Change]) -> dict[str, float]:
    """Return the quotas of an entity after changes.

    Raises:
        Refused: INVALID_REQUEST.
    """
    after, seen = dict(quotas), set[str]()
    for change in changes:
        if change.key in seen:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{change.key}: expected once in the request")
        seen.add(change.key)
        if change.remove:
            after.pop(change.key, None)
        else:
            after[change.key] = _checked(change)
    return after


def _checked(change: Change) -> float:
    if change.key not in QUOTAS:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"{change.key}: expected one of {', '.join(sorted(QUOTAS))}",
        )
    is_whole = change.key not in WHOLE or (isfinite(change.value) and change.value % 1 == 0)
    if not 0 < change.value <= LONG_MAX or not is_whole:
        kind = "a whole number" if change.key in WHOLE else "a number"
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"{change.key}: expected {kind} above 0, got {change.value:g}",
        )
    return change.value
