"""A cluster's database in PostgreSQL, or what speaks its protocol.

Rule: a commit is never cancelled: a statement that is cancelled while it waits for a synchronous
standby stays committed, and may be lost in a failover. A connection that does not answer is closed
without a word; so are those that warn, which is how a server says that it gave up such a wait.
What a closed connection was asked for has an unknown outcome.
Must not know: what commits are for. It is the only module that imports asyncpg.

Two connections: one for commits and barriers, one for everything else, each with one statement at
a time. They live on the event loop of a thread of their own.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

import asyncpg
from asyncpg import exceptions

from kledger.ledger.cluster import postgres_statements as statements
from kledger.ledger.cluster.database import (
    BEFORE_ALL,
    FORMAT,
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
    session_closed,
    session_waits,
    wrong_seq,
)
from kledger.runtime.clock import SystemClock
from kledger.runtime.loop_thread import LoopStopped, LoopThread
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers

Result = TypeVar("Result")

CONNECT_S: Final = 5.0
PATIENCE_MS: Final = 30_000
"""After that a statement without an answer counts as lost: its server may have been replaced by
another one without a word. The wait for a standby that is away may be as long; it goes on in the
barrier."""
LOST_PEER_MS: Final = 3_000
"""Without an answer of TCP; an owner has to commit again before others fence it."""
READ_PATIENCE_MS: Final = 5_000
"""The same for statements that change nothing, and so wait for no standby."""
SERVER_SETTINGS: Final = {
    "application_name": "kledger",
    "client_connection_check_interval": "5s",  # ends statements whose client has gone
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "0",
    "search_path": "pg_catalog",
    "statement_timeout": "0",
    "synchronous_commit": "on",  # whatever the defaults of the database and the user say
}
_RETRIABLE_CLASSES: Final = ("40", "53", "55", "57", "58")
"""SQLSTATE classes: rolled back by concurrency, no resources, not in that state, stopped by an
operator, error of the system."""
_READ_ONLY: Final = "25006"


class PostgresDatabase:
    """The `ClusterDatabase` at a URL; it connects when it is first used."""

    def __init__(self, url: str, *, patience_ms: int = PATIENCE_MS) -> None:
        """Start the thread; nothing is sent yet.

        Args:
            url: postgresql://USER:PASSWORD@HOST:PORT/DATABASE, as libpq documents it.
            patience_ms: after which the connection of a statement counts as lost.
        """
        self._loop = LoopThread("cluster-database")
        self._loop.start()
        self._is_closed = False
        self._commits, self._others = self._loop.run(_make_connections(url, patience_ms))

    # Methods of ClusterDatabase

    def create(self, *, cluster_id: str, store: str) -> None:
        """Create the tables, in one transaction."""
        self._run(self._create(cluster_id, store))

    def describe(self) -> ClusterDescription:
        """Return the cluster as it is."""
        [found] = self._read(statements.DESCRIBE)
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
        for state, epoch, seq in self._read(statements.STREAM, session):
            if state == SessionState.OPEN:
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
        """Return pages of rows."""
        while page := self._read(statements.ROWS, start, end, ROWS_PER_PAGE):
            yield [(each["key"], each["value"]) for each in page]
            start = page[-1]["id"] + b"\0"

    def groups(self, after: GroupId = BEFORE_ALL) -> Iterator[list[StoredGroup]]:
        """Return pages of groups."""
        while page := self._read(statements.GROUPS, after.epoch, after.seq, GROUPS_PER_PAGE):
            yield [_stored_group(each) for each in page]
            after = GroupId(page[-1]["epoch"], page[-1]["seq"])

    def close(self) -> None:
        """End all connections; a call under way fails."""
        if not self._is_closed:
            self._is_closed = True
            # A statement whose connection has gone ends by itself; asyncpg would cancel the others.
            self._loop.run(_close((self._commits, self._others)))
            self._loop.stop()

    # On the event loop

    async def _create(self, cluster_id: str, store: str) -> None:
        async def create(connection: Any) -> None:
            async with connection.transaction():
                await connection.execute(statements.CREATE)
                await connection.execute(statements.INSERT_CLUSTER, cluster_id, store, FORMAT)

        try:
            await self._others.use(create)
        except DatabaseUnusable as error:
            if isinstance(error.__cause__, exceptions.DuplicateSchemaError):
                raise ClusterExists("the database has a cluster already") from None
            raise

    def _why_not(self, session: SessionId, *, expected: int) -> DatabaseError:
        """Return why a stream did not move, as far as it can be known."""
        for state, _, seq in self._read(statements.STREAM, session):
            if state == SessionState.OPEN:
                return wrong_seq(session, seq, expected=expected)
            if state == SessionState.WAITING:
                return session_waits(session)
        return session_closed(session)

    def _read(self, text: str, *arguments: object) -> list[Any]:
        try:
            return self._run(self._others.fetch(text, *arguments, patience_ms=READ_PATIENCE_MS))
        except UnknownOutcome as error:  # it changes nothing
            raise DatabaseUnavailable(str(error)) from error

    def _change(self, text: str, *arguments: object) -> list[Any]:
        return self._run(self._others.fetch(text, *arguments))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return self._loop.run(work)
        except LoopStopped:
            raise DatabaseUnavailable("the database was closed") from None


class _Connection:
    """One connection, which is made anew after it has failed; it belongs to the event loop."""

    def __init__(self, url: str, supervisor: Supervisor, patience_ms: int) -> None:
        self.supervisor = supervisor
        self._patience_ms = patience_ms
        self._url = url
        self._timers = Timers(SystemClock(), supervisor)
        self._lock = asyncio.Lock()
        self._connection: Any = None
        self._has_warned = False
        self._is_closed = False

    async def fetch(
        self, text: str, *arguments: object, patience_ms: int | None = None
    ) -> list[Any]:
        """Run one statement; return its rows. Raises as `use`."""

        async def fetch(connection: Any) -> list[Any]:
            found: list[Any] = await connection.fetch(text, *arguments)
            return found

        return await self.use(fetch, patience_ms)

    async def use(
        self,
        work: Callable[[Any], Coroutine[Any, Any, Result]],
        patience_ms: int | None = None,
    ) -> Result:
        """Run statements that belong together.

        Raises:
            DatabaseUnavailable, DatabaseUnusable: nothing was changed.
            UnknownOutcome: the connection has died.
        """
        async with self._lock:
            connection = await self._connected()
            self._has_warned = False
            patience = self._timers.call_after(
                self._patience_ms if patience_ms is None else patience_ms, connection.terminate
            )
            try:
                result = await work(connection)
            except Exception as error:
                if (translated := _answered(error)) is None or connection.is_closed():
                    self.drop()
                    raise UnknownOutcome(f"the connection to the database died: {error}") from error
                if isinstance(error, exceptions.ReadOnlySQLTransactionError):
                    self.drop()  # the server has become a standby
                raise translated from error
            except BaseException:
                self.drop()
                raise
            finally:
                patience.cancel()
            if self._has_warned:
                self.drop()
                raise UnknownOutcome("the database warned that the commit may not be replicated")
            return result

    def drop(self) -> None:
        """End the connection without a word; the next statement makes another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def close(self) -> None:
        """End the connection for good."""
        self._is_closed = True
        self.drop()

    async def _connected(self) -> Any:
        if self._is_closed:
            raise DatabaseUnavailable("the database was closed")
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        try:
            connection = await asyncpg.connect(
                self._url,
                timeout=CONNECT_S,
                target_session_attrs="primary",
                server_settings=SERVER_SETTINGS,
                max_cached_statement_lifetime=0,
            )
        except (OSError, TimeoutError, exceptions.TargetServerAttributeNotMatched) as error:
            raise DatabaseUnavailable(f"no connection to the database: {error!r}") from error
        except exceptions.PostgresError as error:
            raise _refused(error) from error
        except (exceptions.InterfaceError, exceptions.InternalClientError, ValueError) as error:
            raise DatabaseUnusable(f"no connection to the database: {error}") from error
        if self._is_closed:
            connection.terminate()
            raise DatabaseUnavailable("the database was closed")
        _notice_lost_peer(connection)
        connection.add_log_listener(self._logged)
        self._connection = connection
        return connection

    def _logged(self, _connection: object, message: Any) -> None:
        if message.severity_en == "WARNING":
            self._has_warned = True


def _notice_lost_peer(connection: Any) -> None:
    """Let a connection end soon if the machine at its other end does not answer any more.

    A server that works on a statement, or waits for its standby, answers the probes of TCP.
    """
    end = connection._transport.get_extra_info("socket")  # the library has no public way
    if end.family == socket.AF_UNIX:
        return
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, LOST_PEER_MS // 1_000)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_PEER_MS)


async def _make_connections(url: str, patience_ms: int) -> tuple[_Connection, _Connection]:
    supervisor = Supervisor()
    return _Connection(url, supervisor, patience_ms), _Connection(url, supervisor, patience_ms)


async def _close(connections: tuple[_Connection, _Connection]) -> None:
    for each in connections:
        each.close()
    await connections[0].supervisor.close()


def _answered(error: Exception) -> DatabaseError | None:
    """Translate the error of a statement that changed nothing; None: unknown."""
    if not isinstance(error, exceptions.PostgresError):
        return None
    # Without a severity it is the library's own: it could not encode an argument.
    is_unsent = isinstance(error, exceptions.DataError) and error.severity_en is None
    return _refused(error) if is_unsent or error.severity_en == "ERROR" else None


def _refused(error: Any) -> DatabaseError:
    """Translate what the server said instead of doing something."""
    state = error.sqlstate or ""
    match error:
        case exceptions.UndefinedTableError() | exceptions.InvalidSchemaNameError():
            return NoCluster("the database has no cluster; `kledger cluster init` makes one")
        case exceptions.PostgresConnectionError():
            return DatabaseUnavailable(f"no connection to the database: {error}")
    if state[:2] in _RETRIABLE_CLASSES or state == _READ_ONLY:
        return DatabaseUnavailable(f"the database refused: {error} ({state})")
    return DatabaseUnusable(f"the database refused: {error} ({state})")


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
