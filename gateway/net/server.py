"""GatewayServer: the listener, and the orderly end.

Rule: stop accepting, answer what is parked, finish what was started, flush, close; whoever does not
take its responses within the grace period is cut off.
Must not know: requests and responses.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TypeAlias

from kledger.gateway.configs.broker_entries import plaintext
from kledger.gateway.configs.broker_settings import LISTENERS
from kledger.gateway.net.connection import Connection
from kledger.gateway.net.listener import ListenerState
from kledger.gateway.services import Services

logger = logging.getLogger(__name__)

ConnectionMaker: TypeAlias = Callable[[ListenerState], Connection]

BACKLOG = 1024
EVERY_ADDRESS = ("0.0.0.0", "::", "")


class GatewayServer:
    """One Kafka listener."""

    def __init__(self, services: Services, make_connection: ConnectionMaker | None = None) -> None:
        """Args: make_connection: makes what serves one socket, if not a `Connection`."""
        self._services = services
        self._make_connection = make_connection or Connection
        self._server: asyncio.Server | None = None
        self._listener: ListenerState | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen on host and port (0: a free one); return the address that was bound.

        An advertised port of 0 in the configuration becomes the port of the listener, and an empty
        advertised host the listener's.
        """
        listener = self._listener = ListenerState(self._services)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: self._make_connection(listener), host, port, backlog=BACKLOG
        )
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        config = self._services.config
        if config.advertised_port == 0:
            config.advertised_port = bound_port
        if not config.advertised_host:
            config.advertised_host = _host_for_clients(host, config.advertised_port)
        self._services.broker_settings.fixed_values[LISTENERS] = plaintext(host, bound_port)
        listener.start_idle_checks()
        return bound_host, bound_port

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._listener.connections) if self._listener is not None else 0

    @property
    def connections(self) -> list[Connection]:
        """The open connections."""
        return list(self._listener.connections) if self._listener is not None else []

    async def stop(self, *, grace_ms: int = 5_000) -> None:
        """Close every connection when what it started is answered, or after the grace period."""
        if self._server is None or self._listener is None:
            return
        server, listener = self._server, self._listener
        self._server = None
        server.close()
        listener.is_stopping = True
        listener.connection_quotas.close()
        for connection in list(listener.connections):
            listener.containment.run(connection, connection.stop)
        deadline = self._services.timers.call_after(grace_ms, listener.abort_all)
        while listener.connections:
            await listener.connection_closed.wait()
        deadline.cancel()
        listener.unsent.close()


def _host_for_clients(host: str, port: int) -> str:
    """Return the host that clients are told; every address is none that a client can connect to."""
    if host not in EVERY_ADDRESS:
        return host
    name = socket.gethostname()
    logger.warning(
        "listening on every address (%s): clients are told to connect to this machine as %s:%d; "
        "advertised.listeners=PLAINTEXT://HOST:PORT tells them something else",
        host, name, port,
    )  # fmt: skip
    return name
