"""Authorized operations; the fields are those that Apache Kafka 4.3 sends without an authorizer."""

from kledger.gateway.metadata.authorized_operations import (
    ALL_OPERATIONS,
    OPERATIONS_NOT_REQUESTED,
    bit_field,
)
from kledger.security.acl_state import Operation, ResourceType


def test_bit_field_sets_the_bit_of_each_operation() -> None:
    assert 0 == bit_field()
    assert 0b11000 == bit_field(Operation.READ, Operation.WRITE)


def test_row_22_fields_are_those_of_kafka() -> None:
    kinds = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
    assert [3576, 3400, 8096] == [ALL_OPERATIONS[each] for each in kinds]
    assert -(2**31) == OPERATIONS_NOT_REQUESTED
