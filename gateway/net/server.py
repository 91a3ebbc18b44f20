"""GatewayServer: one Kafka listener, from its start to its orderly stop.

Rule: a stop ends accepting, answers waiting requests, completes running ones, flushes and closes.
A connection whose client does not read its responses within the grace period is aborted.
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
        """Args: make_connection: makes the protocol of one socket; `Connection` by default."""
        self._services = services
        self._make_connection = make_connection or Connection
        self._server: asyncio.Server | None = None
        self._listener: ListenerState | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen on a host and a port (0: a free one); return the address that was bound.

        An advertised port of 0 in the configuration is replaced by the port of the listener, an
        empty advertised host by the listener's.
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
        admitted = self._listener.connections if self._listener is not None else ()
        return [each for each in admitted if isinstance(each, Connection)]

    async def stop(self, *, grace_ms: int = 5_000) -> None:
        """Close each connection when its started requests are answered, or after `grace_ms`."""
        if self._server is None or self._listener is None:
            return
        server, listener = self._server, self._listener
        self._server = None
        server.close()
        listener.is_stopping = True
        listener.connection_quotas.close()
        for connection in self.connections:
            listener.containment.run(connection, connection.stop)
        deadline = self._services.timers.call_after(grace_ms, listener.abort_all)
        while listener.connections:
            await listener.connection_closed.wait()
        deadline.cancel()
        listener.unsent.close()


def _host_for_clients(host: str, port: int) -> str:
    """Return the host to advertise: this machine's name if the listener has every address."""
    if host not in EVERY_ADDRESS:
        return host
    name = socket.gethostname()
    logger.warning(
        "listening on every address (%s): this server advertises itself as %s:%d; "
        "advertised.listeners=PLAINTEXT://HOST:PORT sets another address",
        host, name, port,
    )  # fmt: skip
    return name
