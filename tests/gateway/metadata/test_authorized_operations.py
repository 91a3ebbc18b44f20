"""Authorized operations; the fields are those that Apache Kafka 4.3 sends without an authorizer."""

from kledger.gateway.metadata.authorized_operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    OPERATIONS_NOT_REQUESTED,
    TOPIC_OPERATIONS,
    AclOperation,
    bit_field,
)


def test_bit_field_sets_the_bit_of_each_operation() -> None:
    assert 0 == bit_field()
    assert 0b11000 == bit_field(AclOperation.READ, AclOperation.WRITE)


def test_row_22_fields_are_those_of_kafka() -> None:
    assert (3576, 3400, 8096) == (TOPIC_OPERATIONS, GROUP_OPERATIONS, CLUSTER_OPERATIONS)
    assert -(2**31) == OPERATIONS_NOT_REQUESTED
