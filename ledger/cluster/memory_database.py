"""A cluster's database in memory: the rules of `database`, one statement after the other.

Rule: it permits nothing that PostgreSQL refuses; the same tests run over both. Several sessions, in
several threads, use one object. `FaultyDatabase` adds faults of connections.
Must not know: SQL.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

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
    DescribedSession,
    GroupId,
    NoCluster,
    OwnerObservation,
    SessionBroker,
    SessionId,
    SessionState,
    StoredGroup,
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
from kledger.runtime.entropy import Entropy, SystemEntropy


@dataclass(slots=True)
class _Session:
    """A session with its stream."""

    broker: SessionBroker
    moved_at_ms: int
    state: SessionState = SessionState.WAITING
    epoch: int = 0
    seq: int = 0
    committed: int = 0


@dataclass(slots=True)
class _Server:
    """A server of a cluster with several nodes."""

    server: SessionBroker
    incarnation: UUID
    is_draining: bool
    seen_at_ms: int


@dataclass(slots=True)
class _Tables:
    """Everything that a real database has on its disk, of a cluster or of a node."""

    cluster_id: str
    incarnation: str
    store: str
    owner: SessionId | None = None
    epoch: int = 0
    sessions: dict[SessionId, _Session] = field(default_factory=dict)
    session_count: int = 0
    groups: dict[GroupId, WalGroup] = field(default_factory=dict)
    rows: dict[bytes, bytes] = field(default_factory=dict)
    nodes: int = 1
    peer_secret: bytes = b""
    servers: dict[int, _Server] = field(default_factory=dict)
    preferred: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DatabaseSnapshot:
    """A backup of a cluster, and of its nodes."""

    tables: _Tables | None
    nodes: Mapping[int, "DatabaseSnapshot"]


class MemoryDatabase:
    """A database that ends with its process."""

    def __init__(
        self, *, now_ms: Callable[[], int] = lambda: 0, entropy: Entropy | None = None
    ) -> None:
        """Args: now_ms: the clock of the database, which only `describe` shows."""
        self._now_ms = now_ms
        self._entropy = entropy or SystemEntropy()
        self._lock = threading.Lock()
        self._created: _Tables | None = None
        self._node: int | None = None
        self._nodes: dict[int, MemoryDatabase] = {}

    def node(self, node: int) -> "MemoryDatabase":
        """Return the database of a node; all callers get the same."""
        found = self._nodes.get(node)
        if found is None:  # asked before the cluster was created, or there is no such node
            found = self._nodes[node] = MemoryDatabase(now_ms=self._now_ms, entropy=self._entropy)
            found._node = node
        return found

    def snapshot(self) -> "DatabaseSnapshot":
        """Return a backup, for `restore`."""
        with self._lock:
            tables = copy.deepcopy(self._created)
        return DatabaseSnapshot(tables, {each: it.snapshot() for each, it in self._nodes.items()})

    def restore(self, snapshot: "DatabaseSnapshot") -> None:
        """Go back to a backup, as a failover to a server does that did not get the last commits."""
        with self._lock:
            self._created = copy.deepcopy(snapshot.tables)
        for each, node in snapshot.nodes.items():
            self.node(each).restore(node)

    # The methods of ClusterDatabase

    def create(self, *, cluster_id: str, store: str, nodes: int = 1) -> None:
        """Create the tables."""
        assert self._node is None, "a node is created with its cluster"
        with self._lock:
            if self._created is not None:
                raise ClusterExists(f"there is the cluster {self._created.cluster_id} already")
            secret = self._entropy.token(PEER_SECRET_BYTES) if nodes > 1 else b""

            def tables() -> _Tables:
                incarnation = str(self._entropy.uuid4())
                return _Tables(cluster_id, incarnation, store, nodes=nodes, peer_secret=secret)

            self._created = tables()
            if nodes > 1:
                for node in range(1, nodes + 1):
                    self.node(node)._created = tables()

    def describe(self) -> ClusterDescription:
        """Return the cluster as it is."""
        with self._lock:
            tables = self._tables()
            return ClusterDescription(
                cluster_id=tables.cluster_id,
                incarnation=tables.incarnation,
                store=tables.store,
                format=FORMAT if tables.nodes == 1 else FORMAT_OF_NODES,
                epoch=tables.epoch,
                owner=tables.owner,
                sessions=[self._described(tables, each) for each in sorted(tables.sessions)],
                synchronous="",
                nodes=tables.nodes,
                peer_secret=tables.peer_secret,
            )

    def begin_session(self, broker: SessionBroker) -> SessionId:
        """Make a session that waits."""
        with self._lock:
            tables = self._tables()
            for each in tables.sessions.values():
                if each.broker.broker_id == broker.broker_id and each.state is SessionState.WAITING:
                    each.state = SessionState.CLOSED
            tables.session_count += 1
            session = SessionId(tables.session_count)
            tables.sessions[session] = _Session(broker, self._now_ms())
            self._forget_sessions(tables)
            return session

    def acquire(self, session: SessionId) -> AcquiredEpoch | None:
        """Become the owner if there is none."""
        with self._lock:
            tables = self._tables()
            mine = self._open(tables, session)
            if mine.state is SessionState.WAITING:
                mine.moved_at_ms = self._now_ms()
                if tables.owner is not None:
                    return None
                tables.epoch += 1
                tables.owner = session
                mine.state, mine.epoch = SessionState.OPEN, tables.epoch
                self._forget_sessions(tables)
            return AcquiredEpoch(mine.epoch, mine.seq)

    def commit(self, session: SessionId, seq: int, change: Change) -> None:
        """Change everything in one step."""
        with self._lock:
            tables = self._tables()
            mine = self._owner(tables, session)
            if mine.seq != seq - 1:
                raise wrong_seq(session, mine.seq, expected=seq - 1)
            mine.seq = mine.committed = seq
            mine.moved_at_ms = self._now_ms()
            if change.group is not None:
                tables.groups[GroupId(mine.epoch, seq)] = change.group
            for key, value in change.rows:
                if value is None:
                    tables.rows.pop(bytes(key), None)
                else:
                    tables.rows[bytes(key)] = bytes(value)
            for moved in change.relocated:
                if moved.group_id in tables.groups:
                    tables.groups[moved.group_id] = moved.wal
            for group_id in change.forgotten:
                tables.groups.pop(group_id, None)

    def barrier(self, session: SessionId, *, confirmed: int, seq: int) -> int:
        """Raise the stream to `seq` without a change."""
        with self._lock:
            mine = self._owner(self._tables(), session)
            if not confirmed <= mine.seq < seq:
                raise wrong_seq(session, mine.seq, expected=confirmed)
            mine.seq = seq
            mine.moved_at_ms = self._now_ms()
            return mine.committed

    def observe(self) -> OwnerObservation | None:
        """Return the owner and the number of its stream."""
        with self._lock:
            tables = self._tables()
            if tables.owner is None:
                return None
            return OwnerObservation(tables.owner, tables.sessions[tables.owner].seq)

    def fence(self, session: SessionId, seen_seq: int) -> bool:
        """Close the stream of the owner, if its number has not moved."""
        with self._lock:
            tables = self._tables()
            found = tables.sessions.get(session)
            if found is None or found.state is not SessionState.OPEN or found.seq != seen_seq:
                return False
            _close(tables, session)
            return True

    def end_session(self, session: SessionId) -> None:
        """Close a session of the caller's own."""
        with self._lock:
            tables = self._tables()
            if session in tables.sessions:
                _close(tables, session)

    def rows(self, start: bytes, end: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        """Return pages of rows."""
        while page := self._rows_page(start, end):
            yield page
            start = page[-1][0] + b"\0"

    def groups(self, after: GroupId = BEFORE_ALL) -> Iterator[list[StoredGroup]]:
        """Return pages of groups."""
        while page := self._groups_page(after):
            yield page
            after = page[-1].group_id

    def close(self) -> None:
        """Do nothing: there is no connection, and other sessions may go on."""

    # The methods of NodesDatabase

    def observe_nodes(self) -> NodesObservation:
        """Return all nodes with their owners, and all servers."""
        with self._lock:
            tables, now_ms = self._tables(), self._now_ms()
            servers = [
                DescribedServer(each.server, each.is_draining, max(now_ms - each.seen_at_ms, 0))
                for _, each in sorted(tables.servers.items())
            ]
        nodes = [
            self.node(node)._described_node(node)._replace(preferred=tables.preferred.get(node))
            for node in range(1, tables.nodes + 1)
        ]
        return NodesObservation(nodes, servers)

    def announce_server(
        self, server: SessionBroker, incarnation: UUID, *, is_draining: bool
    ) -> bool:
        """Let all servers see that a server lives."""
        with self._lock:
            servers, now_ms = self._tables().servers, self._now_ms()
            for server_id, each in list(servers.items()):
                if server_id != server.broker_id and now_ms - each.seen_at_ms > SERVER_FORGOTTEN_MS:
                    del servers[server_id]
            found = servers.get(server.broker_id)
            if (
                found is not None
                and found.incarnation != incarnation
                and now_ms - found.seen_at_ms <= SERVER_LIVE_MS
            ):
                return False
            servers[server.broker_id] = _Server(server, incarnation, is_draining, now_ms)
            return True

    def end_server(self, server_id: int, incarnation: UUID) -> None:
        """Let all servers see that a server has ended."""
        with self._lock:
            servers = self._tables().servers
            if server_id in servers and servers[server_id].incarnation == incarnation:
                del servers[server_id]

    def prefer_server(self, node: int, server_id: int | None) -> None:
        """Let one server own a node, while it lives."""
        with self._lock:
            preferred = self._tables().preferred
            if server_id is None:
                preferred.pop(node, None)
            else:
                preferred[node] = server_id

    def _described_node(self, node: int) -> DescribedNode:
        with self._lock:
            tables = self._tables()
            if tables.owner is None:
                return DescribedNode(node, tables.epoch, None, None, 0)
            owner = tables.sessions[tables.owner]
            return DescribedNode(
                node,
                tables.epoch,
                OwnerObservation(tables.owner, owner.seq),
                owner.broker.broker_id,
                max(self._now_ms() - owner.moved_at_ms, 0),
            )

    # Under the lock

    def _rows_page(self, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        with self._lock:
            rows = self._tables().rows
            keys = sorted(each for each in rows if start <= each < end)
            return [(key, rows[key]) for key in keys[:ROWS_PER_PAGE]]

    def _groups_page(self, after: GroupId) -> list[StoredGroup]:
        with self._lock:
            groups = self._tables().groups
            ids = sorted(each for each in groups if each > after)
            return [StoredGroup(each, groups[each]) for each in ids[:GROUPS_PER_PAGE]]

    def _tables(self) -> _Tables:
        if self._created is None:
            if self._node is not None:
                raise no_node(self._node)
            raise NoCluster("the database has no cluster; `kledger cluster init` makes one")
        return self._created

    def _described(self, tables: _Tables, session: SessionId) -> DescribedSession:
        found = tables.sessions[session]
        return DescribedSession(
            session,
            found.state,
            found.broker,
            found.epoch,
            found.seq,
            max(self._now_ms() - found.moved_at_ms, 0),
            sum(each.epoch == found.epoch for each in tables.groups),
        )

    @staticmethod
    def _open(tables: _Tables, session: SessionId) -> _Session:
        found = tables.sessions.get(session)
        if found is None or found.state is SessionState.CLOSED:
            raise session_closed(session)
        return found

    def _owner(self, tables: _Tables, session: SessionId) -> _Session:
        found = self._open(tables, session)
        if found.state is SessionState.WAITING:
            raise session_waits(session)
        return found

    @staticmethod
    def _forget_sessions(tables: _Tables) -> None:
        epochs = {each.epoch for each in tables.groups}
        for session, each in list(tables.sessions.items()):
            if each.state is SessionState.CLOSED and each.epoch not in epochs:
                del tables.sessions[session]


def _close(tables: _Tables, session: SessionId) -> None:
    tables.sessions[session].state = SessionState.CLOSED
    if tables.owner == session:
        tables.owner = None
