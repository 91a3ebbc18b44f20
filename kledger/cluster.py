"""Cluster: what a broker shares with the others of its cluster.

Rule: a `ClusterMember` opens it when the broker starts. Workers are numbered from the `node.id` of
the settings, and their shared tables are in the folder above those of their stores.
It is also the `NativeCluster` of the broker's native service.
Must not know: processes, listeners.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kledger.gateway.cluster import Cluster
from kledger.gateway.cluster_brokers import BrokerRecord, ClusterBrokers
from kledger.gateway.peers.peer_link import connect_to
from kledger.gateway.peers.peer_socket import bind_peer_socket
from kledger.gateway.peers.peers import Peers
from kledger.gateway.request_context import plain_listener
from kledger.ledger.shared_tables import SharedTables
from kledger.runtime.timers import Timers
from kledger.topics.placement import Placement
from kledger.topics.registry import TopicCluster
from kledger.workers.worker_plan import worker_folder

if TYPE_CHECKING:
    from kledger.gateway.config import GatewayConfig
    from kledger.gateway.listeners.endpoint import Endpoint
    from kledger.runtime.clock import Clock
    from kledger.runtime.containment import Containment
    from kledger.runtime.tasks import Supervisor
    from kledger.workers.worker_identity import Address, WorkerIdentity


class ClusterMember(Protocol):
    """What makes a server a broker of a cluster."""

    @property
    def bootstrap(self) -> Mapping[str, "Address"]:
        """Addresses on which it listens together with others, see `WorkerIdentity`."""
        ...

    async def open(
        self,
        config: "GatewayConfig",
        *,
        containment: "Containment",
        clock: "Clock",
        supervisor: "Supervisor",
    ) -> "BrokerCluster":
        """Open what the brokers share.

        Args:
            config: of this broker.
            containment: for faults of what follows the others' changes.
            clock: of this broker.
            supervisor: runs the tasks of the cluster.

        Raises:
            StoreUnusable, UnreadableRow, StorageFailed: it cannot be read.
        """
        ...


class WorkerMember:
    """Makes a server one of several workers."""

    def __init__(self, worker: "WorkerIdentity") -> None:
        self._worker = worker

    @property
    def bootstrap(self) -> Mapping[str, "Address"]:
        """The addresses that all workers listen on."""
        return self._worker.bootstrap

    async def open(
        self,
        config: "GatewayConfig",
        *,
        containment: "Containment",
        clock: "Clock",
        supervisor: "Supervisor",
    ) -> "BrokerCluster":
        """Open what the workers share."""
        worker, node_id = self._worker, config.node_id
        first = node_id - worker.index
        folder = Path(worker_folder(worker.folder, worker.index))
        tables = await SharedTables.open(
            Path(worker.folder), containment=containment, clock=clock, supervisor=supervisor
        )
        timers = Timers(clock, supervisor)
        peers = Peers(
            lambda broker_id: connect_to(Path(worker_folder(worker.folder, broker_id - first))),
            clock=clock,
            timers=timers,
            supervisor=supervisor,
        )
        try:
            return BrokerCluster(
                tables,
                Placement(node_id, range(first, first + worker.count)),
                ClusterBrokers(tables, node_id, range(first, first + worker.made_with)),
                peers,
                bind_peer_socket=lambda: bind_peer_socket(folder),
                timers=timers,
            )
        except BaseException:
            await tables.close()
            raise


class BrokerCluster:
    """The cluster of one broker.

    Attributes:
        cluster: what its services work with.
        tables: of the cluster.
    """

    def __init__(
        self,
        tables: SharedTables,
        placement: Placement,
        brokers: ClusterBrokers,
        peers: Peers,
        *,
        bind_peer_socket: Callable[[], socket.socket],
        timers: Timers,
    ) -> None:
        """Join the parts.

        Args:
            tables: that the brokers share.
            placement: of their partitions.
            brokers: all of them.
            peers: asks the others.
            bind_peer_socket: returns what the others connect to. Raises OSError.
            timers: of this broker.
        """
        self.tables = tables
        self.bind_peer_socket = bind_peer_socket
        self.cluster = Cluster(
            TopicCluster(tables, placement),
            brokers,
            peers,
            refreshed=tables.refreshed,
            timers=timers,
        )

    async def register(
        self, config: "GatewayConfig", endpoints: Sequence["Endpoint"], native: str
    ) -> None:
        """Let clients of all brokers know what they connect to for this one.

        Args:
            config: of the bound gateway.
            endpoints: the bound listeners; without any, that of `server.kafka`.
            native: what native clients connect to; empty: they cannot.

        Raises:
            LedgerError: they do not know it.
        """
        shown = [each.advertised for each in endpoints] or [plain_listener(config)]
        addresses = {each.name: (each.host, each.port) for each in shown}
        brokers = self.cluster.brokers
        await brokers.register(BrokerRecord(brokers.broker_id, addresses, native))

    @property
    def broker_ids(self) -> Sequence[int]:
        """All brokers, ascending."""
        return self.cluster.topics.placement.broker_ids

    def address_of(self, broker_id: int) -> str:
        """Return HOST:PORT for native clients of a broker; empty: it is not known yet."""
        record = self.cluster.brokers.find(broker_id)
        return "" if record is None else record.native

    async def refresh(self) -> None:
        """Apply what other brokers have changed before this call.

        Raises:
            AlreadyClosed, StorageFailed: it is not known.
        """
        await self.tables.refresh()

    async def close(self) -> None:
        """Close the tables. Idempotent."""
        await self.tables.close()
