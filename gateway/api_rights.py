"""API rights: what a client must be allowed to do, for every API key.

Rule: every served key has a row. A right on the cluster for the whole request is asked for by the
router, before the handler is called; all others by the handler, for each thing that the request
names. A refused client gets the code of the kind of resource, and learns nothing else of it.
Must not know: users, access rules.

Source: Apache Kafka's KafkaApis and ControllerApis.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from kledger.gateway.wire.error_codes import ErrorCode
from kledger.security.acl_state import Operation, ResourceType

REFUSALS: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The code of a refusal."""


class Scope(Enum):
    """What a right is asked for, and what happens without it."""

    REQUEST = "request"
    """The whole request; the router refuses it. Of several such rights one is enough."""
    EACH = "each"
    """Each thing that the request names; its part of the answer is the refusal."""
    LISTED = "listed"
    """Each thing that would be listed; it is left out."""
    INSTEAD = "instead"
    """Enough without the others of the row; nothing is logged when it is missing."""
    SHOWN = "shown"
    """A part of the answer, which is empty without it."""


class ApiRight(NamedTuple):
    """One right that a handler or the router asks for."""

    operation: Operation
    resource_type: ResourceType
    scope: Scope = Scope.EACH
    since: int = 0
    """The first version in which it is asked for."""


def _cluster(operation: Operation, scope: Scope = Scope.REQUEST, since: int = 0) -> ApiRight:
    return ApiRight(operation, ResourceType.CLUSTER, scope, since)


def _topic(operation: Operation, scope: Scope = Scope.EACH) -> ApiRight:
    return ApiRight(operation, ResourceType.TOPIC, scope)


def _group(operation: Operation, scope: Scope = Scope.EACH) -> ApiRight:
    return ApiRight(operation, ResourceType.GROUP, scope)


def _transactional_id(operation: Operation, scope: Scope = Scope.EACH) -> ApiRight:
    return ApiRight(operation, ResourceType.TRANSACTIONAL_ID, scope)


_READ_GROUP: Final = (_group(Operation.READ),)
_OFFSETS: Final = (_group(Operation.READ), _topic(Operation.READ))

API_RIGHTS: Final[Mapping[int, tuple[ApiRight, ...]]] = {
    0: (_topic(Operation.WRITE), _transactional_id(Operation.WRITE)),
    1: (_topic(Operation.READ), _cluster(Operation.CLUSTER_ACTION, Scope.EACH)),
    2: (_topic(Operation.DESCRIBE),),
    3: (
        _topic(Operation.DESCRIBE),
        _cluster(Operation.CREATE, Scope.INSTEAD),
        _topic(Operation.CREATE),
        _cluster(Operation.DESCRIBE, Scope.SHOWN),
    ),
    8: _OFFSETS,
    9: (_group(Operation.DESCRIBE), _topic(Operation.DESCRIBE)),
    10: (_group(Operation.DESCRIBE), _transactional_id(Operation.DESCRIBE)),
    11: _READ_GROUP,
    12: _READ_GROUP,
    13: _READ_GROUP,
    14: _READ_GROUP,
    15: (_group(Operation.DESCRIBE),),
    16: (
        _cluster(Operation.DESCRIBE, Scope.INSTEAD),
        _group(Operation.DESCRIBE, Scope.LISTED),
    ),
    17: (),
    18: (),
    19: (
        _cluster(Operation.CREATE, Scope.INSTEAD),
        _topic(Operation.CREATE),
        _topic(Operation.DESCRIBE_CONFIGS, Scope.SHOWN),
    ),
    20: (
        _cluster(Operation.DELETE, Scope.INSTEAD),
        _topic(Operation.DELETE),
        _topic(Operation.DESCRIBE, Scope.SHOWN),
    ),
    21: (_topic(Operation.DELETE),),
    22: (
        _transactional_id(Operation.WRITE),
        _cluster(Operation.IDEMPOTENT_WRITE, Scope.INSTEAD),
        _topic(Operation.WRITE),
    ),
    23: (_cluster(Operation.CLUSTER_ACTION, Scope.INSTEAD), _topic(Operation.DESCRIBE)),
    24: (
        _cluster(Operation.CLUSTER_ACTION, since=4),
        _transactional_id(Operation.WRITE),
        _topic(Operation.WRITE),
    ),
    25: (_transactional_id(Operation.WRITE), _group(Operation.READ)),
    26: (_transactional_id(Operation.WRITE),),
    27: (_cluster(Operation.ALTER), _cluster(Operation.CLUSTER_ACTION)),
    28: (_transactional_id(Operation.WRITE), *_OFFSETS),
    29: (_cluster(Operation.DESCRIBE),),
    30: (_cluster(Operation.ALTER),),
    31: (_cluster(Operation.ALTER),),
    32: (
        _topic(Operation.DESCRIBE_CONFIGS),
        _cluster(Operation.DESCRIBE_CONFIGS, Scope.EACH),
        _group(Operation.DESCRIBE_CONFIGS),
    ),
    33: (
        _topic(Operation.ALTER_CONFIGS),
        _cluster(Operation.ALTER_CONFIGS, Scope.EACH),
        _group(Operation.ALTER_CONFIGS),
    ),
    34: (_cluster(Operation.ALTER),),
    35: (_cluster(Operation.DESCRIBE),),
    36: (),
    37: (_topic(Operation.ALTER),),
    38: (ApiRight(Operation.CREATE_TOKENS, ResourceType.USER),),
    39: (),
    40: (),
    41: (
        ApiRight(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, Scope.LISTED),
        ApiRight(Operation.DESCRIBE_TOKENS, ResourceType.USER, Scope.LISTED),
    ),
    42: (_group(Operation.DELETE),),
    43: (_cluster(Operation.ALTER),),
    44: (
        _topic(Operation.ALTER_CONFIGS),
        _cluster(Operation.ALTER_CONFIGS, Scope.EACH),
        _group(Operation.ALTER_CONFIGS),
    ),
    45: (_cluster(Operation.ALTER),),
    46: (_cluster(Operation.DESCRIBE),),
    47: (_group(Operation.DELETE), _topic(Operation.READ)),
    48: (_cluster(Operation.DESCRIBE_CONFIGS),),
    49: (_cluster(Operation.ALTER_CONFIGS),),
    50: (_cluster(Operation.DESCRIBE),),
    51: (_cluster(Operation.ALTER),),
    55: (_cluster(Operation.DESCRIBE),),
    57: (_cluster(Operation.ALTER),),
    60: (_cluster(Operation.DESCRIBE, Scope.SHOWN),),
    61: (_topic(Operation.READ),),
    65: (
        _transactional_id(Operation.DESCRIBE),
        _topic(Operation.DESCRIBE, Scope.LISTED),
    ),
    66: (_transactional_id(Operation.DESCRIBE, Scope.LISTED),),
    68: (_group(Operation.READ), _topic(Operation.DESCRIBE)),
    69: (_group(Operation.DESCRIBE), _topic(Operation.DESCRIBE)),
    71: (),
    72: (),
    74: (_cluster(Operation.DESCRIBE_CONFIGS),),
    75: (_topic(Operation.DESCRIBE),),
}
"""The rights by API key. Keys 39 and 40 are for the owner of a token and its renewers."""

REPEATED_REFUSALS: Final = {43, 45, 50}
"""The keys whose refused request has the code for the whole and for each thing that it names."""


def request_rights(key: int, version: int) -> tuple[Operation, ...]:
    """Return the operations on the cluster of which the whole request needs one; none: no right."""
    return tuple(
        right.operation
        for right in API_RIGHTS[key]
        if right.scope is Scope.REQUEST and version >= right.since
    )
