"""NodeServer: a server of a cluster of nodes, from its start to its end.

Rule: it serves every node that it owns on one event loop, each as a separate broker. It is ready
with its first node; while it owns none, only its admin listener is open. A server that ends hands
its nodes over one by one, as long as other servers can take them.
Must not know: which nodes it ought to own, command lines, signals.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from kledger.cluster_owner import ClusterOwner, ServerCrashed
from kledger.cluster_settings import describe_usable, owner_settings, session_broker_of
from kledger.ledger.cluster import (
    ClusterDatabase,
    ClusterDescription,
    DatabaseUnusable,
    NodesDatabase,
    PostgresDatabase,
)
from kledger.nodes.node_addresses import NodesMistake
from kledger.nodes.node_claims import (
    NodeClaims,
    NodeSession,
    NodeUnavailable,
    ServerIdTaken,
)
from kledger.nodes.node_member import NodeMembers
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.clock import Clock, SystemClock, boot_ms
from kledger.runtime.concurrent_work import run_until
from kledger.runtime.entropy import SystemEntropy
from kledger.runtime.free_memory import release_free_memory
from kledger.setting_values import joined_address, split_address
from kledger.settings import Settings
from kledger.wiring import BrokerServer, CannotStart

if TYPE_CHECKING:
    from kledger.admin.listener import AdminListener

logger = logging.getLogger(__name__)

EXIT_FAILURE: Final = 1


class NodeServer:
    """One server; `run` it once."""

    def __init__(
        self,
        settings: Settings,
        *,
        announce: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            settings: with the URLs of the cluster; `node.id` is the id of this server.
            announce: called with the line of a server that waits, and with its ready line.
            clock: in place of the machine's.
        """
        url = settings.cluster.url
        assert url is not None, "no URL of a database"
        self._url = url
        self._settings = settings
        self._announce = announce
        self._clock = clock or SystemClock()
        self._serving: dict[int, BrokerServer] = {}
        self._admin_address = "-"
        self._is_ready = False

    async def run(self, ending: "asyncio.Future[int]") -> int:
        """Serve until an exit code is set, or an error ends the server; return the exit code.

        Raises:
            CannotStart: the database, the store, an address or a setting is not usable.
            LedgerError: a node did not close everything.
        """
        await BrokerServer(self._settings, on_crash=_raise).check()
        database, pool = PostgresDatabase(self._url), BlockingPool(1)
        try:
            cluster = await describe_usable(self._settings, database, pool)
            return await self._run(cluster, database, ending)
        finally:
            await pool.run(database.close)
            pool.close()

    async def _run(
        self, cluster: ClusterDescription, database: PostgresDatabase, ending: "asyncio.Future[int]"
    ) -> int:
        try:
            members = NodeMembers.of_database(self._url, cluster, self._settings, self._clock)
        except NodesMistake as error:
            raise CannotStart(str(error), is_mistake=True) from error
        try:
            listener = await self._listen()
            try:
                self._announce(f"kledger standby admin={self._admin_address}")
                return await self._own(members, database, ending)
            finally:
                if listener is not None:
                    await listener.stop()
        finally:
            await members.close()

    async def _listen(self) -> "AdminListener | None":
        """Serve the pages of this process."""
        address = self._settings.server.admin
        if address is None:
            return None
        # HTTP takes longer to load than all the rest.
        from kledger.admin.node_pages import nodes_listener

        listener = nodes_listener(self._serving)
        self._admin_address = joined_address(
            *await listener.start(*split_address("server.admin", address))
        )
        return listener

    async def _own(
        self, members: NodeMembers, database: PostgresDatabase, ending: "asyncio.Future[int]"
    ) -> int:
        """Own nodes until the exit code is set."""
        claims = NodeClaims(
            _Databases(self._url, database),
            session_broker_of(self._settings),
            SystemEntropy().uuid4(),
            serve=partial(self._serve, members),
            clock=self._clock,
            boot_ms=boot_ms,
            make_pool=partial(BlockingPool, 1),
            silent=members.silent,
        )
        try:
            return await run_until(claims.run(), _drained(claims, ending))
        except (ServerIdTaken, DatabaseUnusable) as error:
            setting = "node.id" if isinstance(error, ServerIdTaken) else "cluster.url"
            raise CannotStart(f"{setting}: {error}", is_mistake=True) from error
        except ServerCrashed:
            logger.exception("stopping: the server of a node has crashed")
            return EXIT_FAILURE

    async def _serve(self, members: NodeMembers, session: NodeSession) -> None:
        """Serve a node until its session is fenced, or the node is handed over.

        Raises:
            NodeUnavailable: the database or the object store failed, for this node.
        """
        node = session.node
        cluster = await session.pool.run(session.database.describe)
        owner = ClusterOwner(
            owner_settings(members.node_settings(node), cluster),
            session.database,
            cluster,
            pool=session.pool,
            clock=self._clock,
            member=members.member(node),
        )
        try:
            await owner.serve(session.owned, on_ready=partial(self._ready, members, node))
        except CannotStart as error:
            if error.is_mistake:
                raise
            raise NodeUnavailable(str(error)) from error
        finally:
            self._serving.pop(node, None)
            await session.pool.run(release_free_memory)

    def _ready(self, members: NodeMembers, node: int, server: BrokerServer) -> None:
        self._serving[node] = server
        logger.info("node %s is ready: %s", node, server.ready_line())
        if not self._is_ready:
            self._is_ready = True
            self._announce(members.ready_line(self._admin_address))


class _Databases:
    """The `NodeDatabases` at a URL."""

    def __init__(self, url: str, nodes: NodesDatabase) -> None:
        self._url = url
        self.nodes = nodes

    def node(self, node: int) -> ClusterDatabase:
        return PostgresDatabase(self._url, node=node)


async def _drained(claims: NodeClaims, ending: "asyncio.Future[int]") -> int:
    """Wait for the exit code, and then until no node is left that another server can take."""
    code = await ending
    await claims.drain()
    return code


def _raise(error: BaseException) -> NoReturn:
    raise error
