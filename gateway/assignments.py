"""Assignments: the broker of each partition, and the assignments that requests contain.

Rule: a partition has one replica, so a valid assignment names exactly one known broker.
Must not know: requests, how brokers are chosen.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from kledger.topics import Topic


class BrokerAssignment(Protocol):
    """What CreateTopics and CreatePartitions say of a partition."""

    broker_ids: list[int]


def are_assigned(assignments: Sequence[BrokerAssignment], broker_ids: Collection[int]) -> bool:
    """Whether each assignment names one of these brokers, and no other."""
    return all(
        len(each.broker_ids) == 1 and each.broker_ids[0] in broker_ids for each in assignments
    )


def first_brokers(assignments: Sequence[BrokerAssignment]) -> list[int]:
    """Return the broker of each assignment that names one."""
    return [each.broker_ids[0] for each in assignments]


def one_of(broker_ids: Collection[int]) -> str:
    """Return what an assignment is expected to name, for an error."""
    if len(broker_ids) == 1:
        return f"node {min(broker_ids)} alone, as no other broker is registered"
    return f"one of the brokers {', '.join(map(str, sorted(broker_ids)))}"


def leaders_of(topic: Topic, node_id: int) -> Sequence[int]:
    """Return the broker of each partition.

    Args:
        topic: has the partitions.
        node_id: of this broker, which leads everything if it is alone.
    """
    return topic.record.leaders or [node_id] * topic.partition_count
