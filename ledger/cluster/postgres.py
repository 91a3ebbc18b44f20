"""A cluster's database in PostgreSQL, or in a database with the same protocol.

Rule: what must be atomic is one statement. A statement whose connection died has an unknown
outcome, which the caller settles.
Must not know: what commits are for.

Two connections: one for commits and barriers, one for everything else, each with one statement at
a time. They live on an event loop in a separate thread.
"""

from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from asyncpg import exceptions

from kledger.ledger.cluster import node_statements
from kledger.ledger.cluster import postgres_statements as statements
from kledger.ledger.cluster.database import (
    BEFORE_ALL,
    FORMAT,
    FORMAT_OF_NODES,
    GROUPS_PER_PAGE,
    ROWS_PER_PAGE,
    AcquiredEpoch,
    Change,
    ClusterDescription,
    ClusterExists,
    DatabaseError,
    DatabaseUnavailable,
    DatabaseUnusable,
    DescribedSession,
    GroupId,
    NoCluster,
    OwnerObservation,
    SessionBroker,
    SessionId,
    SessionState,
    StoredGroup,
    UnknownOutcome,
    WalGroup,
    no_node,
    session_closed,
    session_waits,
    wrong_seq,
)
from kledger.ledger.cluster.nodes_database import (
    PEER_SECRET_BYTES,
    SERVER_FORGOTTEN_MS,
    SERVER_LIVE_MS,
    DescribedNode,
    DescribedServer,
    NodesObservation,
)
from kledger.ledger.cluster.postgres_connection import (
    READ_TIMEOUT_MS,
    TIMEOUT_MS,
    PostgresConnection,
)
from kledger.ledger.cluster.shared_statements import CREATE_SHARED
from kledger.runtime.entropy import SystemEntropy
from kledger.runtime.loop_thread import LoopStopped, LoopThread
from kledger.runtime.tasks import Supervisor

Result = TypeVar("Result")


class PostgresDatabase:
    """The `ClusterDatabase` and `NodesDatabase` at a URL; it connects when it is first used."""

    def __init__(self, url: str, *, node: int | None = None, timeout_ms: int = TIMEOUT_MS) -> None:
        """Start the thread; nothing is sent yet.

        Args:
            url: postgresql://USER:PASSWORD@HOST:PORT/DATABASE, as libpq documents it.
            node: whose tables these are; None: those of the cluster.
            timeout_ms: after which the connection of a statement counts as lost.
        """
        self._node = node
        self._loop = LoopThread("cluster-database")
        self._loop.start()
        self._is_closed = False
        schema = node_statements.schema_of(node)
        self._commits, self._others = self._loop.run(_make_connections(url, schema, timeout_ms))

    # Methods of ClusterDatabase

    def create(self, *, cluster_id: str, store: str, nodes: int = 1) -> None:
        """Create the tables, in one transaction."""
        assert self._node is None, "a node is created with its cluster"
        self._run(self._create(cluster_id, store, nodes))

    def describe(self) -> ClusterDescription:
        """Return the cluster as it is."""
        [found] = self._read(statements.DESCRIBE)
        nodes, peer_secret = 1, b""
        if found["format"] == FORMAT_OF_NODES:
            [(nodes, peer_secret)] = self._read(node_statements.NODES)
        return ClusterDescription(
            cluster_id=found["cluster_id"],
            incarnation=found["incarnation"],
            store=found["store"],
            format=found["format"],
            epoch=found["epoch"],
            owner=found["owner"],
            sessions=[_described(each) for each in self._read(statements.DESCRIBE_SESSIONS)],
            synchronous=found["synchronous"],
            loses_on_crash=() if found["fsync"] == "on" else ("fsync = off",),
            nodes=nodes,
            peer_secret=peer_secret,
        )

    def begin_session(self, broker: SessionBroker) -> SessionId:
        """Make a session that waits."""
        [found] = self._change(statements.BEGIN_SESSION, *broker)
        self._change(statements.FORGET_SESSIONS)
        return SessionId(found["session_id"])

    def acquire(self, session: SessionId) -> AcquiredEpoch | None:
        """Become the owner if there is none."""
        if found := self._change(statements.ACQUIRE, session):
            state, epoch, seq = found[0]
            if state == SessionState.WAITING:
                return None
            self._change(statements.FORGET_SESSIONS)
            return AcquiredEpoch(epoch, seq)
        # Reading that it is the owner would not do: that may not be replicated yet.
        for epoch, seq in self._change(statements.CONFIRM_OWNER, session):
            return AcquiredEpoch(epoch, seq)
        raise session_closed(session)

    def commit(self, session: SessionId, seq: int, change: Change) -> None:
        """Change everything in one statement."""
        text, arguments = statements.commit_statement(session, seq, change)
        if not self._run(self._commits.fetch(text, *arguments)):
            raise self._why_not(session, expected=seq - 1)

    def barrier(self, session: SessionId, *, confirmed: int, seq: int) -> int:
        """Raise the stream to `seq` without a change."""
        found = self._run(self._commits.fetch(statements.BARRIER, session, confirmed, seq))
        if not found:
            raise self._why_not(session, expected=confirmed)
        committed: int = found[0]["committed"]
        return committed

    def observe(self) -> OwnerObservation | None:
        """Return the owner and the number of its stream."""
        [(owner, seq)] = self._read(statements.OBSERVE)
        return None if owner is None else OwnerObservation(SessionId(owner), seq)

    def fence(self, session: SessionId, seen_seq: int) -> bool:
        """Close the stream of the owner, if its number has not moved."""
        return bool(self._change(statements.FENCE, session, seen_seq))

    def end_session(self, session: SessionId) -> None:
        """Close a session of the caller's own."""
        self._change(statements.END_SESSION, session)

    def rows(self, start: bytes, end: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        """Return pages of rows; the next one is read while the caller has the one before."""
        page = self._read(statements.ROWS, start, end, ROWS_PER_PAGE)
        while page:
            after = page[-1]["id"] + b"\0"
            following = self._begin_read(statements.ROWS, after, end, ROWS_PER_PAGE)
            yield [(each["key"], each["value"]) for each in page]
            page = self._read_result(following.result)

    def groups(self, after: GroupId = BEFORE_ALL) -> Iterator[list[StoredGroup]]:
        """Return pages of groups."""
        while page := self._read(statements.GROUPS, after.epoch, after.seq, GROUPS_PER_PAGE):
            yield [_stored_group(each) for each in page]
            after = GroupId(page[-1]["epoch"], page[-1]["seq"])

    def close(self) -> None:
        """End all connections; a call under way fails."""
        if not self._is_closed:
            self._is_closed = True
            # The server ends a statement whose connection is closed; asyncpg would cancel the
            # others.
            self._loop.run(_close((self._commits, self._others)))
            self._loop.stop()

    # Methods of NodesDatabase

    def observe_nodes(self) -> NodesObservation:
        """Return all nodes with their owners, and all servers."""
        return NodesObservation(
            [_described_node(each) for each in self._read(node_statements.OBSERVE_NODES)],
            [_described_server(each) for each in self._read(node_statements.OBSERVE_SERVERS)],
        )

    def announce_server(
        self, server: SessionBroker, incarnation: UUID, *, is_draining: bool
    ) -> bool:
        """Let all servers see that a server lives."""
        times_ms = SERVER_LIVE_MS, SERVER_FORGOTTEN_MS
        return bool(
            self._change(
                node_statements.ANNOUNCE_SERVER, *server, incarnation, is_draining, *times_ms
            )
        )

    def end_server(self, server_id: int, incarnation: UUID) -> None:
        """Let all servers see that a server has ended."""
        self._change(node_statements.END_SERVER, server_id, incarnation)

    def prefer_server(self, node: int, server_id: int | None) -> None:
        """Let one server own a node, while it lives."""
        if server_id is None:
            self._change(node_statements.PREFER_ANY, node)
        else:
            self._change(node_statements.PREFER_SERVER, node, server_id)

    # On the event loop

    async def _create(self, cluster_id: str, store: str, nodes: int) -> None:
        cluster = cluster_id, store, FORMAT if nodes == 1 else FORMAT_OF_NODES

        async def create_schema(connection: Any, schema: str) -> None:
            await connection.execute(f"CREATE SCHEMA {schema}")
            await connection.execute(f"SET LOCAL search_path = {schema}, pg_temp")
            await connection.execute(statements.CREATE)
            await connection.execute(statements.INSERT_CLUSTER, *cluster)

        async def create(connection: Any) -> None:
            async with connection.transaction():
                if nodes > 1:
                    for node in range(1, nodes + 1):
                        await create_schema(connection, node_statements.schema_of(node))
                await create_schema(connection, node_statements.CLUSTER_SCHEMA)
                if nodes > 1:
                    await connection.execute(node_statements.CREATE_NODES)
                    await connection.execute(CREATE_SHARED)
                    await connection.execute(node_statements.create_node_owner(nodes))
                    secret = SystemEntropy().token(PEER_SECRET_BYTES)
                    await connection.execute(node_statements.INSERT_NODES, nodes, secret)

        try:
            await self._others.use(create)
        except DatabaseUnusable as error:
            if isinstance(error.__cause__, exceptions.DuplicateSchemaError):
                raise ClusterExists("the database has a cluster already") from None
            raise

    def _why_not(self, session: SessionId, *, expected: int) -> DatabaseError:
        """Return the most likely reason why a stream did not move."""
        for state, _, seq in self._read(statements.STREAM, session):
            if state == SessionState.OPEN:
                return wrong_seq(session, seq, expected=expected)
            if state == SessionState.WAITING:
                return session_waits(session)
        return session_closed(session)

    def _read(self, text: str, *arguments: object) -> list[Any]:
        work = self._others.fetch(text, *arguments, timeout_ms=READ_TIMEOUT_MS)
        return self._read_result(partial(self._loop.run, work))

    def _begin_read(self, text: str, *arguments: object) -> Future[list[Any]]:
        work = self._others.fetch(text, *arguments, timeout_ms=READ_TIMEOUT_MS)
        return self._result(partial(self._loop.begin, work))

    def _read_result(self, wait: Callable[[], Result]) -> Result:
        try:
            return self._result(wait)
        except UnknownOutcome as error:  # it changes nothing
            raise DatabaseUnavailable(str(error)) from error

    def _change(self, text: str, *arguments: object) -> list[Any]:
        return self._run(self._others.fetch(text, *arguments))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._result(partial(self._loop.run, work))

    def _result(self, wait: Callable[[], Result]) -> Result:
        """Return what a call of the loop returns, or raise an error of databases."""
        try:
            return wait()
        except LoopStopped:
            raise DatabaseUnavailable("the database was closed") from None
        except NoCluster as error:
            raise (error if self._node is None else no_node(self._node)) from error.__cause__


async def _make_connections(
    url: str, schema: str, timeout_ms: int
) -> tuple[PostgresConnection, PostgresConnection]:
    supervisor = Supervisor()
    commits, others = (
        PostgresConnection(url, supervisor, timeout_ms, schema=schema) for _ in range(2)
    )
    return commits, others


async def _close(connections: tuple[PostgresConnection, PostgresConnection]) -> None:
    for each in connections:
        each.close()
    await connections[0].supervisor.close()


def _described(found: Any) -> DescribedSession:
    return DescribedSession(
        SessionId(found["id"]),
        SessionState(found["state"]),
        SessionBroker(found["broker_id"], found["kafka"], found["native"], found["admin"]),
        found["epoch"],
        found["seq"],
        max(found["silent_ms"], 0),
        found["group_count"],
    )


def _stored_group(found: Any) -> StoredGroup:
    return StoredGroup(
        GroupId(found["epoch"], found["seq"]),
        WalGroup(found["object"], found["size"], found["footer_at"], found["inline"], found["at"]),
    )


def _described_node(found: Any) -> DescribedNode:
    owner = None
    if found["owner"] is not None:
        owner = OwnerObservation(SessionId(found["owner"]), found["seq"])
    return DescribedNode(
        found["node"],
        found["epoch"],
        owner,
        found["server_id"],
        max(found["silent_ms"] or 0, 0),
        found["preferred"],
    )


def _described_server(found: Any) -> DescribedServer:
    server = SessionBroker(found["server_id"], found["kafka"], found["native"], found["admin"])
    return DescribedServer(server, found["is_draining"], max(found["silent_ms"], 0))
