"""Assignments: the broker of each partition, and the assignments that requests contain.

Rule: a valid assignment names known brokers, as many for each partition. The first one leads the
partition; there are no other replicas, as the storage has the copies.
Must not know: requests, how brokers are chosen.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from kledger.topics import Topic


class BrokerAssignment(Protocol):
    """What CreateTopics and CreatePartitions say of a partition."""

    broker_ids: list[int]


def are_assigned(assignments: Sequence[BrokerAssignment], broker_ids: Collection[int]) -> bool:
    """Whether each assignment names some of these brokers, each once, and all as many."""
    known, named = set(broker_ids), [each.broker_ids for each in assignments]
    is_even = len(set(map(len, named))) <= 1
    return is_even and all(
        each and known.issuperset(each) and len(set(each)) == len(each) for each in named
    )


def first_brokers(assignments: Sequence[BrokerAssignment]) -> list[int]:
    """Return the broker that is to lead each partition."""
    return [each.broker_ids[0] for each in assignments]


def some_of(broker_ids: Collection[int]) -> str:
    """Return what an assignment is expected to name, for an error."""
    if len(broker_ids) == 1:
        return f"node {min(broker_ids)} alone, as no other broker is registered"
    return f"some of the brokers {', '.join(map(str, sorted(broker_ids)))}"


def leaders_of(topic: Topic, node_id: int) -> Sequence[int]:
    """Return the broker of each partition.

    Args:
        topic: has the partitions.
        node_id: of this broker, which leads everything if it is alone.
    """
    return topic.record.leaders or [node_id] * topic.partition_count
