"""ACL messages: rules and filters in requests and answers of keys 29 to 31.

Rule: a code that does not exist, and 0, end the connection, as in Apache Kafka.
Must not know: which rules exist.
"""

from enum import IntEnum
from typing import Protocol, TypeVar

from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.messages.k30_create_acls import AclCreation
from kledger.security.acl_state import (
    AclFilter,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

E = TypeVar("E", bound=IntEnum)


class RequestedFilter(Protocol):
    """The fields of a filter in DescribeAcls and DeleteAcls."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def filter_of(asked: RequestedFilter, version: int) -> AclFilter:
    """Return the filter of a request.

    Raises:
        MalformedMessage: a code does not exist.
    """
    return AclFilter(
        _known(ResourceType, asked, "resource_type_filter", version),
        _known(PatternType, asked, "pattern_type_filter", version),
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        _known(Operation, asked, "operation", version),
        _known(Permission, asked, "permission_type", version),
    )


def rule_of(asked: AclCreation, version: int) -> AclRule:
    """Return the rule that a request wants to create; see also `is_for_filters`.

    Raises:
        MalformedMessage: a code does not exist.
    """
    return AclRule(
        ResourcePattern(
            _known(ResourceType, asked, "resource_type", version),
            _known(PatternType, asked, "resource_pattern_type", version),
            asked.resource_name,
        ),
        asked.principal,
        asked.host,
        _known(Operation, asked, "operation", version),
        _known(Permission, asked, "permission_type", version),
    )


def is_for_filters(rule: AclRule) -> bool:
    """Whether a code of a rule is one that only filters can have."""
    return (
        rule.pattern.resource_type is ResourceType.ANY
        or rule.pattern.pattern_type in {PatternType.ANY, PatternType.MATCH}
        or rule.operation is Operation.ANY
        or rule.permission is Permission.ANY
    )


def _known(kind: type[E], asked: object, field: str, version: int) -> E:
    code = getattr(asked, field)
    if not 1 <= code <= max(kind):
        raise MalformedMessage(
            type(asked).__name__,
            version,
            position=0,
            field=field,
            expected=f"1 to {max(kind)}",
            got=str(code),
        )
    return kind(code)
