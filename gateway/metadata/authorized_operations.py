"""Bit fields of the operations that a client may perform (KIP-430).

Without an authorizer every client may perform every operation of a kind of resource, so each field
is a constant. Bit n stands for the operation with code n.

Must not know: clients.
"""

from enum import IntEnum
from typing import Final


class AclOperation(IntEnum):
    """Kafka's codes of operations."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def bit_field(*operations: AclOperation) -> int:
    """Return the field in which the bit of each operation is set."""
    return sum(1 << operation for operation in operations)


OPERATIONS_NOT_REQUESTED: Final = -(2**31)
TOPIC_OPERATIONS: Final = bit_field(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = bit_field(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = bit_field(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
