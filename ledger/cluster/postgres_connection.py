"""One connection to PostgreSQL, which is replaced after it has failed.

Rule: a statement is never cancelled: one that is cancelled while it waits for a synchronous standby
stays committed, and may be lost in a failover. So a connection that does not answer is aborted, and
so is one with a warning, by which a server reports that it gave up such a wait. The statement of an
aborted connection has an unknown outcome.
Must not know: tables, what statements are for.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import asyncpg
from asyncpg import exceptions

from kledger.ledger.cluster.database import (
    DatabaseError,
    DatabaseUnavailable,
    DatabaseUnusable,
    NoCluster,
    UnknownOutcome,
)
from kledger.runtime.clock import SystemClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers

Result = TypeVar("Result")

CONNECT_S: Final = 5.0
TIMEOUT_MS: Final = 30_000
"""After that a statement without an answer counts as lost: its server may have been replaced
without closing the connection. The wait for an unavailable standby may take longer; the barrier
continues it."""
LOST_PEER_MS: Final = 3_000
"""Without an answer of TCP; an owner has to commit again before others fence it."""
READ_TIMEOUT_MS: Final = 5_000
"""The same for statements that change nothing, and so wait for no standby."""
SERVER_SETTINGS: Final = {
    "application_name": "kledger",
    "client_connection_check_interval": "5s",  # ends statements whose client has gone
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "10s",
    "jit": "off",  # a statement here takes less time than its compilation
    "lock_timeout": "0",
    "statement_timeout": "0",
    "synchronous_commit": "on",  # whatever the defaults of the database and the user say
}
_RETRIABLE_CLASSES: Final = ("40", "53", "55", "57", "58")
"""SQLSTATE classes: rolled back by concurrency, no resources, not in that state, stopped by an
operator, error of the system."""
_READ_ONLY: Final = "25006"
_COMPLETION_UNKNOWN: Final = "40003"
"""A database with PostgreSQL's protocol says so if it has lost the outcome itself."""


class PostgresConnection:
    """One connection with one statement at a time; it belongs to the event loop."""

    def __init__(
        self, url: str, supervisor: Supervisor, timeout_ms: int, *, schema: str = "pg_catalog"
    ) -> None:
        """Make one that connects when it is first used.

        Args:
            url: as libpq documents it.
            supervisor: runs the timer of statements.
            timeout_ms: after which the connection of a statement counts as lost.
            schema: of the tables that statements name without one.
        """
        self.supervisor = supervisor
        # Temporary tables, of which there are none, come last; by default they would come first.
        self._settings = SERVER_SETTINGS | {"search_path": f"{schema}, pg_temp"}
        self._timeout_ms = timeout_ms
        self._url = url
        self._timers = Timers(SystemClock(), supervisor)
        self._lock = asyncio.Lock()
        self._connection: Any = None
        self._has_warned = False
        self._is_closed = False

    @property
    def current(self) -> Any:
        """What is connected now; None: the next statement makes a connection."""
        connection = self._connection
        return None if connection is None or connection.is_closed() else connection

    async def fetch(
        self, text: str, *arguments: object, timeout_ms: int | None = None
    ) -> list[Any]:
        """Run one statement; return its rows. Raises as `use`."""

        async def fetch(connection: Any) -> list[Any]:
            found: list[Any] = await connection.fetch(text, *arguments)
            return found

        return await self.use(fetch, timeout_ms)

    async def use(
        self,
        work: Callable[[Any], Coroutine[Any, Any, Result]],
        timeout_ms: int | None = None,
    ) -> Result:
        """Run statements that belong together.

        Raises:
            DatabaseUnavailable, DatabaseUnusable: nothing was changed.
            UnknownOutcome: the connection has died.
        """
        async with self._lock:
            connection = await self._connected()
            self._has_warned = False
            timer = self._timers.call_after(
                self._timeout_ms if timeout_ms is None else timeout_ms, connection.terminate
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
                timer.cancel()
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
        if (current := self.current) is not None:
            return current
        try:
            connection = await asyncpg.connect(
                self._url,
                timeout=CONNECT_S,
                target_session_attrs="primary",
                server_settings=self._settings,
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


def _answered(error: Exception) -> DatabaseError | None:
    """Translate the error of a statement that changed nothing; None: unknown."""
    if not isinstance(error, exceptions.PostgresError) or error.sqlstate == _COMPLETION_UNKNOWN:
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
