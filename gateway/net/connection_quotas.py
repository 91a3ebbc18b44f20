"""Entrance: which new connections are served, which wait, and which are turned away.

Rule, in Kafka's order: while there are `max.connections`, a new one waits for its turn, and nothing
of it is started; one above its address's `connection_creation_rate` is kept so for as long as it
came too early, and closed then (KIP-612); one above its address's limit is closed at once. Whoever
waits or is turned away costs a socket and what one read brings, and there are not many of them.
Must not know: requests.
"""

import errno
import resource
from collections import Counter
from typing import TYPE_CHECKING, Final

from kledger.gateway.configs.address_limits import parse_overrides

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

    from kledger.gateway.net.connection import Connection
    from kledger.gateway.services import Services
    from kledger.runtime.timers import TimerHandle

WAITING_MAX: Final = 1_024
"""Connections that wait for a place; more are closed at once."""
FILES_RESERVED: Final = 32
"""Of the files that the process may open, so many are not for connections."""
DELAYED_CLOSES_MAX: Final = 1_024
"""Connections that came too early and are still open; more are closed at once."""


class ConnectionQuotas:
    """The connections of one server: those inside, and those that are not."""

    def __init__(self, services: "Services") -> None:
        self._services = services
        self._config = services.config
        self.admitted: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}
        self._delayed_closes: dict[Connection, TimerHandle] = {}
        self._counts: Counter[str] = Counter()
        self._overrides_text = ""
        self._overrides: dict[str, int] = {}
        self._accepted = services.metrics.counter(
            "connections_accepted", "connections that were let in"
        )

    def connection_opened(
        self, connection: "Connection", socket: "TransportSocket | None" = None
    ) -> None:
        """A connection was opened; it is not served before it is let in."""
        if socket is not None and self._exhausts_files(connection, socket.fileno()):
            return
        if len(self._waiting) >= WAITING_MAX:
            connection.fail(f"more than {self._config.max_connections} connections")
            return
        self._waiting[connection] = None
        self.admit_waiting()

    def _exhausts_files(self, connection: "Connection", descriptor: int) -> bool:
        """Close a connection that has one of the last files: the storage could open none.

        Were there none left, the event loop would close connections without telling anybody.
        """
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit < 0 or descriptor < limit - FILES_RESERVED:
            return False
        reason = f"{descriptor} files are open, of {limit} that the process may open"
        self._services.store.health.failed(
            OSError(errno.EMFILE, reason), f"accepting a connection of {connection.peer_host}"
        )
        connection.fail(reason)
        return True

    def admit_waiting(self) -> None:
        """Let those in for whom there is a place, in their order."""
        while self._waiting and len(self.admitted) < self._config.max_connections:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            self._services.supervisor.containment.run(connection, self._check, connection)

    def leave(self, connection: "Connection") -> None:
        """A connection is closed, wherever it was."""
        self._waiting.pop(connection, None)
        if (closing := self._delayed_closes.pop(connection, None)) is not None:
            closing.cancel()
        if connection in self.admitted:
            self.admitted.remove(connection)
            self._counts[connection.peer_host] -= 1
            if not self._counts[connection.peer_host]:
                del self._counts[connection.peer_host]
            self.admit_waiting()

    def close(self) -> None:
        """Turn away all that were not let in."""
        not_admitted = (*self._waiting, *self._delayed_closes)
        self._waiting.clear()
        for connection in not_admitted:
            connection.abort()

    def _check(self, connection: "Connection") -> None:
        host = connection.peer_host
        wait_ms = self._services.quotas.admit_connection(host)
        if wait_ms:
            self._close_later(connection, wait_ms)
            return
        limit = self._limit_of(host)
        if self._counts[host] >= limit:
            connection.fail(f"more than {limit} connections from there")
            return
        self._counts[host] += 1
        self.admitted.add(connection)
        self._accepted.value += 1
        connection.begin()

    def _close_later(self, connection: "Connection", wait_ms: int) -> None:
        if len(self._delayed_closes) >= DELAYED_CLOSES_MAX:
            connection.abort()
            return
        self._delayed_closes[connection] = self._services.timers.call_after(
            wait_ms, connection.abort, connection
        )

    def _limit_of(self, host: str) -> int:
        text = self._config.max_connections_per_ip_overrides
        if text != self._overrides_text:
            self._overrides_text, self._overrides = text, parse_overrides(text)
        return self._overrides.get(host, self._config.max_connections_per_ip)
