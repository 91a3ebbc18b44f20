"""Placement: which broker leads a partition.

Rule: the record of a topic names a broker for each partition, for as long as the partition lives.
New partitions go to the brokers that lead the fewest of the topic, and then the fewest of all.
A single server leads everything, and its records name no broker.
Must not know: addresses, how brokers agree on records.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import TypeAlias

from kledger.topics.errors import InvalidPartitions
from kledger.topics.partition.leader_epoch_state import FIRST_EPOCH

Leaders: TypeAlias = tuple[int, ...]
"""The broker of each partition; empty: the only one."""


def place_partitions(
    count: int, led: Mapping[int, int], brokers: Collection[int], existing: Sequence[int] = ()
) -> Leaders:
    """Return the brokers of new partitions.

    Args:
        count: how many partitions.
        led: how many partitions of all topics each broker leads.
        brokers: that may lead them, at least one.
        existing: the brokers of the partitions that the topic has.
    """
    in_topic = Counter(existing)
    order = [(in_topic[broker], led.get(broker, 0), broker) for broker in brokers]
    heapify(order)
    placed = []
    for _ in range(count):
        of_topic, of_all, broker = order[0]
        placed.append(broker)
        heapreplace(order, (of_topic + 1, of_all + 1, broker))
    return tuple(placed)


class Placement:
    """The partitions of a cluster, as one of its brokers knows them.

    Attributes:
        broker_id: of this broker.
        broker_ids: of all brokers that may lead new partitions.
    """

    def __init__(self, broker_id: int, broker_ids: Sequence[int]) -> None:
        self.broker_id = broker_id
        self.broker_ids = tuple(broker_ids)
        self.on_leader_epoch: Callable[[int], None] | None = None
        """Called with the id of a broker whose leader epoch has changed."""
        self._led: Counter[int] = Counter()
        self._leader_epochs: dict[int, int] = {}

    def leader_epoch_of(self, broker_id: int) -> int:
        """Return the epoch under which another broker leads its partitions."""
        return self._leader_epochs.get(broker_id, FIRST_EPOCH)

    def set_leader_epoch(self, broker_id: int, leader_epoch: int) -> None:
        """Note the epoch under which another broker leads its partitions from now on."""
        if leader_epoch != self.leader_epoch_of(broker_id):
            self._leader_epochs[broker_id] = leader_epoch
            if self.on_leader_epoch is not None:
                self.on_leader_epoch(broker_id)

    def count(self, before: Leaders, after: Leaders) -> None:
        """Note that the leaders of a topic have changed; empty: it did or does not exist."""
        self._led.subtract(before)
        self._led.update(after)

    def place(
        self,
        count: int,
        *,
        existing: Leaders = (),
        assigned: Sequence[int] | None = None,
        has_one_leader: bool = False,
    ) -> Leaders:
        """Return the leaders of a topic that gets partitions.

        Args:
            count: of the new partitions.
            existing: the leaders of those that it has.
            assigned: the brokers that its user demands for the new ones; None: any.
            has_one_leader: one broker leads all partitions; for a new topic this one.

        Raises:
            InvalidPartitions: there is no such broker, or it may not lead these partitions.
        """
        if has_one_leader:
            leader = existing[0] if existing else self.broker_id
            if assigned is not None and (others := set(assigned) - {leader}):
                raise InvalidPartitions(
                    f"partitions of a named topic: expected broker {leader} to lead all of them, "
                    f"got {', '.join(map(str, sorted(others)))}"
                )
            return (*existing, *[leader] * count)
        if assigned is None:
            return (*existing, *place_partitions(count, self._led, self.broker_ids, existing))
        for broker in assigned:
            if broker not in self.broker_ids:
                known = ", ".join(map(str, self.broker_ids))
                raise InvalidPartitions(f"broker {broker}: expected one of {known}")
        return (*existing, *assigned)
