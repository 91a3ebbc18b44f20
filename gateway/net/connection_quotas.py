"""ConnectionQuotas: which new connections are served, which wait, and which are closed.

Rule, in Kafka's order: above `max.connections` a new connection waits unserved until another one is
closed. Above the `connection_creation_rate` of its address it stays unserved for as long as it came
too early, and is closed then (KIP-612). Above the connection limit of its address it is closed at
once. An unserved connection costs a socket and the bytes of one read; their number is limited. The
connections of other brokers are not limited; clients cannot open one.
Must not know: requests.
"""

import errno
import resource
from collections import Counter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kledger.gateway.configs.address_limits import parse_overrides
from kledger.gateway.net.ports import NewConnection
from kledger.gateway.services import Services

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

    from kledger.runtime.timers import TimerHandle

WAITING_MAX: Final = 1_024
"""Connections that may wait for others to close; more are closed at once."""
FILES_RESERVED: Final = 32
"""Of the files that the process may open, so many are kept from connections."""
DELAYED_CLOSES_MAX: Final = 1_024
"""Connections above the rate of their address that stay open; more are closed at once."""

ConnectionT = TypeVar("ConnectionT", bound=NewConnection)


class ConnectionQuotas(Generic[ConnectionT]):
    """The connections of one listener.

    Attributes:
        admitted: those that are served.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._config = services.config
        self.admitted: set[ConnectionT] = set()
        self._waiting: dict[ConnectionT, None] = {}
        self._delayed_closes: dict[ConnectionT, TimerHandle] = {}
        self._counts: Counter[str] = Counter()
        self._overrides_text = ""
        self._overrides: dict[str, int] = {}
        self._accepted = services.metrics.counter(
            "connections_accepted", "connections that were let in"
        )

    def connection_opened(
        self, connection: ConnectionT, socket: "TransportSocket | None" = None
    ) -> None:
        """Admit a new connection, keep it waiting, or close it."""
        if socket is not None and self._exhausts_files(connection, socket.fileno()):
            return
        if len(self._waiting) >= WAITING_MAX:
            connection.fail(f"more than {self._config.max_connections} connections")
            return
        self._waiting[connection] = None
        self.admit_waiting()

    def admit_broker(self, connection: ConnectionT) -> None:
        """Admit another broker of the cluster, however many clients there are."""
        self._admit(connection)

    def _exhausts_files(self, connection: ConnectionT, descriptor: int) -> bool:
        """Close a connection that has one of the last files, so that the storage can open some.

        Without any left, the event loop would close connections without a word in the log.
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
        """Admit waiting connections in the order of their arrival, up to `max.connections`."""
        while self._waiting and len(self.admitted) < self._config.max_connections:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            self._services.supervisor.containment.run(connection, self._check, connection)

    def leave(self, connection: ConnectionT) -> None:
        """Forget a closed connection, and admit the next one that waits."""
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
        """Close all connections that are not served."""
        not_admitted = (*self._waiting, *self._delayed_closes)
        self._waiting.clear()
        for connection in not_admitted:
            connection.abort()

    def _check(self, connection: ConnectionT) -> None:
        host = connection.peer_host
        wait_ms = self._services.quotas.admit_connection(host)
        if wait_ms:
            self._close_later(connection, wait_ms)
            return
        limit = self._limit_of(host)
        if self._counts[host] >= limit:
            connection.fail(f"more than {limit} connections from there")
            return
        self._admit(connection)

    def _admit(self, connection: ConnectionT) -> None:
        self._counts[connection.peer_host] += 1
        self.admitted.add(connection)
        self._accepted.value += 1
        connection.begin()

    def _close_later(self, connection: ConnectionT, wait_ms: int) -> None:
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
