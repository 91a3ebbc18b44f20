"""Bit fields of the operations that a client may perform (KIP-430).

Without an authorizer every client may perform every operation of a kind of resource, so each field
is a constant; `RequestContext.authorized_operations` has those of a client. Bit n stands for the
operation with code n.

Must not know: clients.
"""

from typing import Final

from kledger.security.acl_state import OPERATIONS, Operation


def bit_field(*operations: Operation) -> int:
    """Return the field in which the bit of each operation is set."""
    return sum(1 << operation for operation in operations)


OPERATIONS_NOT_REQUESTED: Final = -(2**31)
ALL_OPERATIONS: Final = {
    resource_type: bit_field(*operations) for resource_type, operations in OPERATIONS.items()
}
"""The field of every kind of resource without an authorizer."""
