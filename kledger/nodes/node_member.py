"""NodeMembers: makes the server of a node a broker of its cluster.

Rule: the nodes of one process share the connection to the shared tables and the reserved ports,
which stay reserved whichever nodes the server owns. Stopping one node affects neither.
Must not know: which nodes this process owns, how they are served.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kledger.cluster import BrokerCluster
from kledger.gateway.cluster_brokers import ClusterBrokers
from kledger.gateway.net.server import host_for_clients
from kledger.gateway.peers.peers import Peers
from kledger.gateway.peers.tcp_peers import TcpPeers
from kledger.ledger.cluster import SharedDatabase
from kledger.ledger.shared_tables import SharedTables
from kledger.nodes.node_addresses import (
    PEERS,
    NodeListener,
    NodesMistake,
    advertised_peers,
    node_changes,
    plan_node_addresses,
)
from kledger.runtime.entropy import Entropy, SystemEntropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.setting_values import joined_address, split_address
from kledger.settings import Settings
from kledger.topics.placement import Placement
from kledger.workers.reserved_ports import ReservedPorts
from kledger.workers.worker_identity import Address
from kledger.workers.worker_plan import NATIVE, WorkersMistake
from kledger.workers.worker_server import listeners_of
from kledger.workers.worker_start import changed

if TYPE_CHECKING:
    from kledger.gateway.config import GatewayConfig
    from kledger.runtime.clock import Clock
    from kledger.runtime.containment import Containment


class NodesDescription(Protocol):
    """What a node must know of its cluster; a `ClusterDescription` is one."""

    @property
    def nodes(self) -> int:
        """How many there are."""
        ...

    @property
    def peer_secret(self) -> bytes:
        """By which brokers know each other."""
        ...


class TableSource(Protocol):
    """The shared rows of one process."""

    async def tables(self, containment: "Containment") -> SharedTables:
        """Return the tables of a node. Raises LedgerError: they cannot be read."""
        ...

    async def close(self) -> None:
        """Close it, behind the tables of all nodes."""
        ...


class DatabaseTables:
    """The shared rows in the database of a cluster; a `TableSource`."""

    def __init__(self, database: SharedDatabase, supervisor: Supervisor) -> None:
        self._database = database
        self._supervisor = supervisor

    @classmethod
    async def open(cls, url: str, clock: "Clock") -> "DatabaseTables":
        """Connect, and read all rows.

        Args:
            url: of the database.
            clock: for the interval of looks.

        Raises:
            StorageFailed: the database is unavailable.
            StoreUnusable: it has no cluster, or cannot be used.
        """
        supervisor = Supervisor()
        try:
            database = await SharedDatabase.open(url, clock=clock, supervisor=supervisor)
        except BaseException:
            await supervisor.close()
            raise
        return cls(database, supervisor)

    async def tables(self, containment: "Containment") -> SharedTables:
        """Return the tables of a node. Raises LedgerError: they cannot be read."""
        return await self._database.tables(containment)

    async def close(self) -> None:
        """End the connections, behind the tables of all nodes."""
        await self._database.close()
        await self._supervisor.close()


class NodeMembers:
    """The nodes of one process; `close` it behind their servers."""

    def __init__(
        self,
        open_tables: Callable[[], Awaitable[TableSource]],
        description: NodesDescription,
        settings: Settings,
        *,
        entropy: Entropy | None = None,
    ) -> None:
        """Reserve the ports of all nodes.

        Args:
            open_tables: opens the shared rows; called for the first node.
            description: of the cluster.
            settings: of the server.
            entropy: makes nonces, in place of the machine's.

        Raises:
            NodesMistake: a port is in use, or cannot be.
        """
        self._open_tables = open_tables
        self._opening = asyncio.Lock()
        self._source: TableSource | None = None
        self._settings = settings
        self.silent: dict[int, int] = {}
        """Nodes whose owner does not commit any more, and its epoch; see `NodeClaims`."""
        self.nodes = description.nodes
        self.secret = description.peer_secret
        self.entropy = entropy or SystemEntropy()
        self._listening = listeners_of(settings)
        self._ports = ReservedPorts()
        peers = self._peers_address()
        planned = plan_node_addresses(self._listening, peers, self.nodes)
        try:
            self._bound = {
                point: self._ports.reserve(_name_of(point), address)
                for point, address in planned.items()
                if point != NodeListener("admin", None)  # which this process binds at once
            }
        except WorkersMistake as error:
            self._ports.close()
            raise NodesMistake(str(error)) from None

    @classmethod
    def of_database(
        cls, url: str, description: NodesDescription, settings: Settings, clock: "Clock"
    ) -> "NodeMembers":
        """Return the nodes of a cluster in a database, which the first node connects to.

        Raises:
            NodesMistake: a port is in use, or cannot be.
        """
        return cls(partial(DatabaseTables.open, url, clock), description, settings)

    @property
    def bootstrap(self) -> Mapping[str, Address]:
        """By listener, the addresses on which all nodes of this process listen."""
        return {
            listener: self._bound[NodeListener(listener, None)]
            for listener in self._listening.shared
        }

    def ready_line(self, admin: str) -> str:
        """Return the line of a server, with the bootstrap addresses.

        Args:
            admin: the address of its admin listener, or `-`.
        """
        shown = {name: joined_address(*address) for name, address in self.bootstrap.items()}
        native = shown.pop(NATIVE, "-")
        return (
            f"kledger ready kafka={','.join(shown.values()) or '-'} native={native} admin={admin}"
        )

    def node_settings(self, node: int) -> Settings:
        """Return the settings of the server of a node."""
        return changed(self._settings, node_changes(node, self._listening, self._bound))

    def member(self, node: int) -> "NodeMember":
        """Return what makes a server the broker of a node, once for each time it is owned."""
        return NodeMember(
            self,
            node,
            peers=self._bound[NodeListener(PEERS, node)],
            advertised=self._advertised_peers(node),
        )

    async def tables(self, containment: "Containment") -> SharedTables:
        """Return the shared tables of a node.

        Raises:
            LedgerError: they cannot be read.
        """
        async with self._opening:
            if self._source is None:
                self._source = await self._open_tables()
        return await self._source.tables(containment)

    async def close(self) -> None:
        """Release the ports, and close the shared rows. Idempotent."""
        self._ports.close()
        source, self._source = self._source, None
        if source is not None:
            await source.close()

    def _peers_address(self) -> Address:
        if self._settings.cluster.peers is not None:
            return split_address("cluster.peers", self._settings.cluster.peers)
        hosts = [host for host, _ in self._listening.shared.values()]
        if not hosts:
            raise NodesMistake("cluster.peers: expected HOST:PORT, as there is no listener")
        return hosts[0], 0

    def _advertised_peers(self, node: int) -> Address:
        host, port = self._bound[NodeListener(PEERS, node)]
        advertised = self._settings.cluster.advertised_peers
        if advertised is not None:
            return advertised_peers(split_address("cluster.advertised_peers", advertised), node)
        return host_for_clients(host), port


class NodeMember:
    """Makes a server the broker of one node; a `ClusterMember`."""

    def __init__(
        self, members: NodeMembers, node: int, *, peers: Address, advertised: Address
    ) -> None:
        self._members = members
        self._node = node
        self._peers = peers
        self._advertised = advertised

    @property
    def bootstrap(self) -> Mapping[str, Address]:
        """The addresses that all nodes of this process listen on."""
        return self._members.bootstrap

    async def open(
        self,
        config: "GatewayConfig",
        *,
        containment: "Containment",
        clock: "Clock",
        supervisor: "Supervisor",
    ) -> BrokerCluster:
        """Open what the nodes of the cluster share."""
        members, node = self._members, self._node
        assert config.node_id == node, f"settings of broker {config.node_id} for node {node}"
        nodes = range(1, members.nodes + 1)
        tables = await members.tables(containment)
        try:
            timers = Timers(clock, supervisor)
            brokers = ClusterBrokers(tables, node, nodes, clock, members.silent)
            transport = TcpPeers(
                node,
                self._peers,
                advertised=self._advertised,
                address_of=lambda each: _peers_of(brokers, each),
                secret=members.secret,
                entropy=members.entropy,
                timers=timers,
            )
            return BrokerCluster(
                tables,
                Placement(node, nodes),
                brokers,
                Peers(transport.connect_to, clock=clock, timers=timers, supervisor=supervisor),
                transport=transport,
                timers=timers,
            )
        except BaseException:
            await tables.close()
            raise


def _peers_of(brokers: ClusterBrokers, broker_id: int) -> Address | None:
    record = brokers.find(broker_id)
    return None if record is None else record.peers


def _name_of(point: NodeListener) -> str:
    return point.listener if point.node is None else f"{point.listener} of node {point.node}"
