"""Cluster markers: the end of a transaction, written into partitions and groups of all brokers.

Rule: a partition gets its marker from the broker that leads it, a group from the one that
coordinates it. All brokers are asked at the same time; a slow one delays the others only briefly.
Must not know: transactional ids, what is decided, connections.
"""

import asyncio
from collections.abc import Collection, Iterable, Set
from typing import TYPE_CHECKING

from kledger.gateway.coordinator.coordinator_shards_state import OFFSETS_TOPIC
from kledger.gateway.coordinator.transactions.txn_markers import Refused, TransactionMarkers
from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.peers.peer_requests import Marker
from kledger.offsets import TopicPartition
from kledger.topics import TransactionEnd

if TYPE_CHECKING:
    from kledger.gateway.cluster_brokers import ClusterBrokers
    from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
    from kledger.gateway.peers.peers import Peers
    from kledger.topics import TopicRegistry


class ClusterMarkers:
    """Writes markers as `TransactionMarkers` does, here and on other brokers."""

    def __init__(
        self,
        local: TransactionMarkers,
        *,
        registry: "TopicRegistry",
        offsets: "GroupOffsets",
        brokers: "ClusterBrokers",
        peers: "Peers",
    ) -> None:
        """Args: local: writes those of this broker."""
        self._local = local
        self._registry = registry
        self._offsets = offsets
        self._brokers = brokers
        self._peers = peers

    async def end(
        self,
        topic_partitions: Iterable[TopicPartition],
        producer: ProducerIdAndEpoch,
        is_commit: bool,
    ) -> Refused:
        """End a producer's transaction in partitions, durably; see `TransactionMarkers.end`."""
        of_brokers: dict[int, list[TopicPartition]] = {}
        for each in topic_partitions:
            of_brokers.setdefault(self._broker_of(each), []).append(each)
        here = of_brokers.pop(self._brokers.broker_id, [])
        if not of_brokers:
            return await self._local.end(here, producer, is_commit)
        refused: Refused = {}
        for found in await asyncio.gather(
            self._local.end(here, producer, is_commit),
            *(self._end_at(each, of_brokers[each], producer, is_commit) for each in of_brokers),
        ):
            refused |= found
        return refused

    async def end_groups(
        self, producer: ProducerIdAndEpoch, groups: Set[str], is_commit: bool
    ) -> Collection[str]:
        """End a producer's transaction in groups; see `TransactionMarkers.end_groups`."""
        elsewhere = await self._local.end_groups(producer, groups, is_commit)
        shards = {group_id: self._offsets.partition_of(group_id) for group_id in elsewhere}
        refused = await self.end(set(shards.values()), producer, is_commit)
        return {group_id for group_id, shard in shards.items() if shard in refused}

    def _broker_of(self, topic_partition: TopicPartition) -> int:
        """Return the broker that writes a partition's marker; this one if it was deleted."""
        name, index = topic_partition
        if name == OFFSETS_TOPIC:
            return self._brokers.coordinator_id(index)
        topic = self._registry.get(name)
        leader = None if topic is None or index >= topic.partition_count else topic.leader_of(index)
        return self._brokers.broker_id if leader is None else leader

    async def _end_at(
        self,
        broker_id: int,
        topic_partitions: Iterable[TopicPartition],
        producer: ProducerIdAndEpoch,
        is_commit: bool,
    ) -> Refused:
        end = TransactionEnd(*producer, is_commit, self._registry.leader_epoch)
        markers = []
        for each in topic_partitions:
            topic = self._registry.get(each.topic)
            topic_id = None if topic is None else topic.id
            markers.append(Marker(end, each, topic_id))
        answers = await self._peers.peer(broker_id).markers.ask(markers)
        return {
            marker.topic_partition: error
            for marker, error in answers.items()
            if error and not self._local.needs_no_marker(marker.topic_partition, error)
        }
