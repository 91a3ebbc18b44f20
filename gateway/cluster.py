"""Cluster: what one broker needs to be part of a cluster: shared tables, brokers, peers.

Rule: a single server has none and does not import this module.
Must not know: requests, where brokers run.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kledger.gateway.cluster_offsets import ClusterOffsets
from kledger.gateway.peers.cluster_markers import ClusterMarkers
from kledger.gateway.peers.remote_transactions import RemoteTransactions
from kledger.ledger import LedgerError

if TYPE_CHECKING:
    from kledger.gateway.cluster_brokers import ClusterBrokers
    from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
    from kledger.gateway.coordinator.transactions.transaction_coordinator import (
        TransactionCoordinator,
    )
    from kledger.gateway.coordinator.transactions.txn_markers import TransactionMarkers
    from kledger.gateway.peers.peers import Peers
    from kledger.ledger import TableStore
    from kledger.runtime.timers import Timers
    from kledger.topics import TopicRegistry
    from kledger.topics.registry import TopicCluster


CATCH_UP_MS: Final = 1_000
"""How long a request waits for what other brokers have changed. Longer than any change takes; but a
broker that hangs in the middle of one must not let the clients of all others wait."""


class Cluster:
    """The cluster of one broker.

    Attributes:
        topics: what the topics of all brokers have in common.
        brokers: all of them.
        tables: what brokers share.
    """

    def __init__(
        self,
        topics: "TopicCluster",
        brokers: "ClusterBrokers",
        peers: "Peers",
        *,
        refreshed: "Callable[[], asyncio.Future[None]]",
        timers: "Timers",
    ) -> None:
        """Join the parts.

        Args:
            topics: what the topics of all brokers have in common.
            brokers: all of them.
            peers: asks the other brokers.
            refreshed: returns a future; done when this broker has applied what others changed.
            timers: of this broker.
        """
        self.topics = topics
        self._refreshed = refreshed
        self._timers = timers
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

    async def catch_up(self) -> None:
        """Apply what other brokers have changed before the call.

        Changes that cannot be read within CATCH_UP_MS are applied as soon as they can.
        """
        with suppress(LedgerError):
            refreshed = self._refreshed()
            refreshed.add_done_callback(_take_error)
            is_over = asyncio.get_running_loop().create_future()
            timer = self._timers.call_after(CATCH_UP_MS, lambda: is_over.set_result(None))
            try:
                waited: list[asyncio.Future[Any]] = [refreshed, is_over]
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()


def _take_error(refreshed: "asyncio.Future[None]") -> None:
    """Retrieve the error, so that asyncio does not log it: the tables log it, and retry."""
    if not refreshed.cancelled():
        refreshed.exception()
