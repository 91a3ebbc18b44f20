"""Cluster: what a worker shares with the others of its server.

Rule: the workers are the brokers of a cluster, numbered from the `node.id` of the settings. Their
shared tables are in the folder above those of their stores.
It is also the `NativeCluster` of the worker's native service.
Must not know: processes, listeners.
"""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
    from kledger.workers.worker_identity import WorkerIdentity


class WorkerCluster:
    """The cluster of one worker.

    Attributes:
        cluster: what its services work with.
        tables: of the cluster.
    """

    def __init__(
        self,
        tables: SharedTables,
        worker: "WorkerIdentity",
        node_id: int,
        *,
        clock: "Clock",
        supervisor: "Supervisor",
    ) -> None:
        first = node_id - worker.index
        self.tables = tables
        self._folder = Path(worker_folder(worker.folder, worker.index))
        timers = Timers(clock, supervisor)
        placement = Placement(node_id, range(first, first + worker.count))
        self.cluster = Cluster(
            TopicCluster(tables, placement),
            ClusterBrokers(tables, node_id, range(first, first + worker.made_with)),
            Peers(
                lambda broker_id: connect_to(Path(worker_folder(worker.folder, broker_id - first))),
                clock=clock,
                timers=timers,
                supervisor=supervisor,
            ),
            refreshed=tables.refreshed,
            timers=timers,
        )

    @classmethod
    async def open(
        cls,
        worker: "WorkerIdentity",
        config: "GatewayConfig",
        *,
        containment: "Containment",
        clock: "Clock",
        supervisor: "Supervisor",
    ) -> "WorkerCluster":
        """Open what the workers share; `SharedTables.open` documents the other arguments.

        Raises:
            StoreUnusable, UnreadableRow, StorageFailed: it cannot be read.
        """
        tables = await SharedTables.open(
            Path(worker.folder), containment=containment, clock=clock, supervisor=supervisor
        )
        try:
            return cls(tables, worker, config.node_id, clock=clock, supervisor=supervisor)
        except BaseException:
            await tables.close()
            raise

    def bind_peer_socket(self) -> socket.socket:
        """Return what the other workers connect to. Raises OSError."""
        return bind_peer_socket(self._folder)

    async def register(
        self, config: "GatewayConfig", endpoints: Sequence["Endpoint"], native: str
    ) -> None:
        """Let clients of all workers know what they connect to for this one.

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
        """All workers, ascending."""
        return self.cluster.topics.placement.broker_ids

    def address_of(self, broker_id: int) -> str:
        """Return HOST:PORT for native clients of a broker; empty: it is not known yet."""
        record = self.cluster.brokers.find(broker_id)
        return "" if record is None else record.native

    async def refresh(self) -> None:
        """Apply what other workers have changed before this call.

        Raises:
            AlreadyClosed, StorageFailed: it is not known.
        """
        await self.tables.refresh()

    async def close(self) -> None:
        """Close the tables. Idempotent."""
        await self.tables.close()
