"""Current leaders: the hints in Produce and Fetch responses to clients with old metadata (KIP-951).

Rule: a hint names the leader and its epoch, and the leader's address on the listener with the same
name as the one that the client uses, if it has one. A partition that does not exist, or has no
leader, gets no hint, and its client requests metadata.
Source: KafkaApis.getCurrentLeader of Apache Kafka 4.3.
Must not know: requests, which errors carry a hint.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kledger.gateway.metadata.partition_lookup import TopicLookup
from kledger.gateway.metadata.shown_leaders import NO_LEADER, shown_brokers, shown_leaders
from kledger.gateway.peer import Peer
from kledger.gateway.request_context import plain_listener
from kledger.gateway.wire.leader_hints import LeaderHints

if TYPE_CHECKING:
    from kledger.gateway.services import Services


class CurrentLeaders:
    """The leaders of the partitions of one server, or of its cluster."""

    def __init__(self, services: "Services") -> None:
        self._services = services
        self._lookup = TopicLookup(services.registry)

    def hints(
        self, partitions: Iterable[tuple[bytes, int]], peer: Peer, *, has_topic_ids: bool
    ) -> LeaderHints:
        """Return the leaders of partitions.

        Args:
            partitions: topic as on the wire, and index.
            peer: the client.
            has_topic_ids: whether topics are ids or names.
        """
        services = self._services
        listener = peer.listener or plain_listener(services.config)
        shown = shown_leaders(services.brokers, peer)
        brokers = shown_brokers(services.brokers, listener, peer)
        addresses = {each.broker_id: each for each in brokers}
        find = self._lookup.by_id if has_topic_ids else self._lookup.by_name
        leaders = {}
        for key, index in partitions:
            topic = find(key)
            if topic is None or not 0 <= index < topic.partition_count:
                continue
            leader = topic.leader_of(index)
            if leader is None:
                leader = services.config.node_id
            leader = shown.get(leader, leader)
            if leader != NO_LEADER:
                leaders[key, index] = leader, topic.leader_epoch(index)
        named = {broker_id for broker_id, _ in leaders.values()}
        return LeaderHints(leaders, [addresses[each] for each in sorted(named & addresses.keys())])
