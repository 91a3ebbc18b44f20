"""Cluster: what a broker shares with others, and how it asks them.

Rule: a server that is alone has none, and loads nothing of it.
Must not know: requests, where brokers run.
"""

from typing import TYPE_CHECKING

from kledger.gateway.cluster_offsets import ClusterOffsets
from kledger.gateway.peers.cluster_markers import ClusterMarkers
from kledger.gateway.peers.remote_transactions import RemoteTransactions

if TYPE_CHECKING:
    from kledger.gateway.cluster_brokers import ClusterBrokers
    from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
    from kledger.gateway.coordinator.transactions.transaction_coordinator import (
        TransactionCoordinator,
    )
    from kledger.gateway.coordinator.transactions.txn_markers import TransactionMarkers
    from kledger.gateway.peers.peers import Peers
    from kledger.ledger import TableStore
    from kledger.topics import TopicRegistry
    from kledger.topics.registry import TopicCluster


class Cluster:
    """The cluster of one broker.

    Attributes:
        topics: what the topics of all brokers have in common.
        brokers: all of them.
        tables: what brokers share.
    """

    def __init__(self, topics: "TopicCluster", brokers: "ClusterBrokers", peers: "Peers") -> None:
        """Args: peers: asks the other brokers."""
        self.topics = topics
        self.brokers = brokers
        self.tables: TableStore = topics.tables
        self._peers = peers

    def markers(
        self, local: "TransactionMarkers", registry: "TopicRegistry", offsets: "GroupOffsets"
    ) -> ClusterMarkers:
        """Return what writes the markers of transactions that this broker coordinates."""
        return ClusterMarkers(
            local, registry=registry, offsets=offsets, brokers=self.brokers, peers=self._peers
        )

    def lowest_offsets(self, registry: "TopicRegistry", offsets: "GroupOffsets") -> ClusterOffsets:
        """Return the lowest offsets that groups of all brokers have committed."""
        return ClusterOffsets(self.tables, registry, offsets, self.brokers)

    def remote_transactions(self, transactions: "TransactionCoordinator") -> RemoteTransactions:
        """Return the transactions that other brokers coordinate."""
        return RemoteTransactions(transactions, self.brokers, self._peers)
