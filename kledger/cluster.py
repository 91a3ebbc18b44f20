"""Cluster members: make a server one broker of a cluster.

Rule: a `ClusterMember` opens it when the broker starts. Workers are numbered from the `node.id` of
the settings, and their shared tables are in the folder above those of their stores.
It is also the `NativeCluster` of the broker's native service.
Must not know: processes, listeners.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kledger.gateway.cluster import Cluster
from kledger.gateway.cluster_brokers import BrokerRecord, ClusterBrokers
from kledger.gateway.net.server import EVERY_ADDRESS
from kledger.gateway.peers.peer_socket import UnixPeers
from kledger.gateway.peers.peer_transport import PeerTransport
from kledger.gateway.peers.peers import Peers
from kledger.gateway.request_context import plain_listener
from kledger.ledger.shared_tables import SharedTables
from kledger.runtime.timers import Timers
from kledger.setting_values import joined_address, split_address
from kledger.topics.partition.leader_epoch_state import FIRST_EPOCH
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
        transport = UnixPeers(
            folder, lambda broker_id: Path(worker_folder(worker.folder, broker_id - first))
        )
        peers = Peers(transport.connect_to, clock=clock, timers=timers, supervisor=supervisor)
        try:
            return BrokerCluster(
                tables,
                Placement(node_id, range(first, first + worker.count)),
                ClusterBrokers(tables, node_id, range(first, first + worker.made_with)),
                peers,
                transport=transport,
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
        transport: by which the others connect to this one.
    """

    def __init__(
        self,
        tables: SharedTables,
        placement: Placement,
        brokers: ClusterBrokers,
        peers: Peers,
        *,
        transport: PeerTransport,
        timers: Timers,
    ) -> None:
        """Join the parts.

        Args:
            tables: that the brokers share.
            placement: of their partitions.
            brokers: all of them.
            peers: asks the others.
            transport: by which the others connect to this one.
            timers: of this broker.
        """
        self.tables = tables
        self.transport = transport
        brokers.follow(lambda record: _started(record, placement, peers))
        self.cluster = Cluster(
            TopicCluster(tables, placement),
            brokers,
            peers,
            refreshed=tables.refreshed,
            timers=timers,
        )

    async def register(
        self,
        config: "GatewayConfig",
        endpoints: Sequence["Endpoint"],
        native: str,
        *,
        leader_epoch: int = FIRST_EPOCH,
    ) -> None:
        """Let clients of all brokers know what they connect to for this one.

        Args:
            config: of the bound gateway.
            endpoints: the bound listeners; without any, that of `server.kafka`.
            native: what native clients connect to; empty: they cannot.
            leader_epoch: under which it leads its partitions.

        Raises:
            Fenced: another process has become this broker meanwhile.
            LedgerError: they do not know it.
        """
        shown = [each.advertised for each in endpoints] or [plain_listener(config)]
        addresses = {each.name: (each.host, each.port) for each in shown}
        if native:
            native = _reachable(native, shown[0].host)
        brokers = self.cluster.brokers
        await brokers.register(
            BrokerRecord(brokers.broker_id, addresses, native, self.transport.address, leader_epoch)
        )

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


def _started(record: BrokerRecord, placement: Placement, peers: Peers) -> None:
    """Apply the new record of a broker, which in a later epoch may run on another machine.

    In the same epoch nothing is to do: connections to its earlier process ended with that process.
    """
    broker_id = record.broker_id
    known = placement.leader_epoch_of(broker_id)
    if broker_id != placement.broker_id and record.leader_epoch != known:
        placement.set_leader_epoch(broker_id, record.leader_epoch)
        peers.reconnect(broker_id)


def _reachable(bound: str, advertised_host: str) -> str:
    """Return what clients on other machines connect to in place of every address of this one."""
    host, port = split_address("server.native", bound)
    return joined_address(advertised_host or host, port) if host in EVERY_ADDRESS else bound
