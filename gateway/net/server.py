"""GatewayServer: the Kafka listeners, from their start to their orderly stop.

Rule: a stop ends accepting, answers waiting requests, completes running ones, flushes and closes.
A connection whose client does not read its responses within the grace period is aborted.
Must not know: requests and responses.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from kledger.gateway.brokers import AdvertisedAddress
from kledger.gateway.configs.broker_entries import listener_text
from kledger.gateway.configs.broker_settings import ADVERTISED_LISTENERS, LISTENERS
from kledger.gateway.net.connection import Connection
from kledger.gateway.net.listener import ListenerState
from kledger.gateway.net.logins import Logins
from kledger.gateway.net.tls_transport import TlsTransport
from kledger.gateway.peer import Peer
from kledger.gateway.services import Services
from kledger.security.principal import BROKER

if TYPE_CHECKING:
    from kledger.gateway.listeners.endpoint import Endpoint
    from kledger.gateway.peers.peer_transport import PeerServer, PeerTransport

logger = logging.getLogger(__name__)

ConnectionMaker: TypeAlias = Callable[[ListenerState], Connection]

BACKLOG = 1024
EVERY_ADDRESS = ("0.0.0.0", "::", "")


class GatewayServer:
    """The Kafka listeners of one server, which share their limits."""

    def __init__(
        self,
        services: Services,
        make_connection: ConnectionMaker | None = None,
        *,
        bootstrap: Mapping[str, tuple[str, int]] | None = None,
    ) -> None:
        """Prepare; nothing listens yet.

        Args:
            services: of the handlers.
            make_connection: makes the protocol of one socket; `Connection` by default.
            bootstrap: of a worker: by the name of each listener, or `kafka` for the one without a
                name, the address on which all workers listen beside their own.
        """
        self._services = services
        self._bootstrap = bootstrap
        self._make_connection = make_connection or Connection
        self._servers: list[asyncio.Server | PeerServer] = []
        self._listener: ListenerState | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen without TLS and logins on a host and a port (0: a free one).

        An advertised port of 0 in the configuration is replaced by the port of the listener, an
        empty advertised host by the listener's.

        Returns:
            The address that was bound.
        """
        listener = self._begin()
        accept = partial(self._make_connection, listener)
        bound_host, bound_port = await self._listen(accept, host, port)
        config = self._services.config
        if config.advertised_port == 0:
            config.advertised_port = bound_port
        if not config.advertised_host:
            config.advertised_host = _host_for_clients(host, config.advertised_port)
        self._show([("PLAINTEXT", host, bound_port)])
        if self._bootstrap is not None:
            await self._listen(accept, *self._bootstrap["kafka"])
        return bound_host, bound_port

    async def start_endpoints(self, endpoints: "Sequence[Endpoint]") -> list[tuple[str, int]]:
        """Listen on every endpoint; return the addresses that were bound, in their order.

        An endpoint that advertises no address gets the one that is bound.
        """
        listener = self._begin()
        addresses = []
        for endpoint in endpoints:
            plan = endpoint.plan
            accept = partial(self._accept, listener, endpoint)
            host, port = await self._listen(accept, plan.host, plan.port)
            shown = endpoint.advertised
            shown_port = shown.port or port
            endpoint.advertised = AdvertisedAddress(
                plan.name, shown.host or _host_for_clients(plan.host, shown_port), shown_port
            )
            addresses.append((host, port))
            if self._bootstrap is not None:
                await self._listen(accept, *self._bootstrap[plan.name])
        self._show(
            [
                (each.plan.name, each.plan.host, port)
                for each, (_, port) in zip(endpoints, addresses, strict=True)
            ]
        )
        self._services.broker_settings.fixed_values[ADVERTISED_LISTENERS] = ",".join(
            listener_text(*each.advertised) for each in endpoints
        )
        return addresses

    async def start_peers(self, transport: "PeerTransport") -> None:
        """Serve the other brokers of the cluster.

        Args:
            transport: accepts their connections, and only theirs.

        Raises:
            OSError: it cannot listen.
        """
        listener = self._listener or self._begin()
        refusals = self._services.metrics.counter(
            "refused_peers", "connections that were not of another broker of the cluster"
        )

        def refused(reason: str) -> None:
            refusals.value += 1
            listener.warnings.warning("refusing a connection for brokers: %s", reason)

        accept = partial(self._accept_peer, listener)
        self._servers.append(await transport.listen(accept, refused=refused, backlog=BACKLOG))

    def _begin(self) -> ListenerState:
        listener = self._listener = ListenerState(self._services)
        listener.start_idle_checks()
        return listener

    async def _listen(
        self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[str, int]:
        server = await asyncio.get_running_loop().create_server(
            make_protocol,
            host,
            port,
            backlog=BACKLOG,
            # The parent of workers has bound all their ports, so that no other server gets them.
            reuse_port=self._bootstrap is not None,
        )
        self._servers.append(server)
        bound_host, bound_port = server.sockets[0].getsockname()[:2]
        return bound_host, bound_port

    def _accept(self, listener: ListenerState, endpoint: "Endpoint") -> asyncio.BaseProtocol:
        """Return the protocol of one socket of an endpoint."""
        connection = self._make_connection(listener)
        connection.enter(endpoint)
        if endpoint.tls is None:
            return connection
        return TlsTransport(
            endpoint.tls.current(), connection, listener.handshakes, listener.encrypted_scratch
        )

    def _accept_peer(self, listener: ListenerState, name: str) -> Connection:
        """Return the protocol of one connection of a broker."""
        connection = self._make_connection(listener)
        connection.peer = Peer(name, principal=BROKER)
        return connection

    def _show(self, listeners: Sequence[tuple[str, str, int]]) -> None:
        """Let DescribeConfigs show where clients connect to."""
        self._services.broker_settings.fixed_values[LISTENERS] = ",".join(
            listener_text(*each) for each in listeners
        )

    @property
    def logins(self) -> Logins:
        """What the logins of all connections share; of a started server."""
        assert self._listener is not None, "the server has not started"
        return self._listener.logins

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
        if not self._servers or self._listener is None:
            return
        servers, listener = self._servers, self._listener
        self._servers = []
        for server in servers:
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
        listener.logins.close()


def host_for_clients(host: str) -> str:
    """Return the host to advertise: this machine's name if the listener has every address."""
    return socket.gethostname() if host in EVERY_ADDRESS else host


def _host_for_clients(host: str, port: int) -> str:
    """Return the host to advertise; log it if no setting names it."""
    found = host_for_clients(host)
    if found != host:
        logger.warning(
            "listening on every address (%s): this server advertises itself as %s:%d; "
            "advertised.listeners=PLAINTEXT://HOST:PORT sets another address",
            host, found, port,
        )  # fmt: skip
    return found
