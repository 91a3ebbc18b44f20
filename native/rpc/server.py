"""RpcServer: the listener for native clients in other processes.

Rule: it serves the Broker of a session and adds nothing to it. Errors are sent by the table of
codes; a client of an unsupported version is refused with the versions of both sides. Connections,
streams and messages have limits; a peer that does not answer pings is disconnected, and its links
are closed. A client's first call, Hello, needs a valid login too.
Must not know: the implementation of the broker.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

import grpc
import grpc.aio

from kledger.native.broker import Broker
from kledger.native.config import NativeConfig
from kledger.native.errors import KledgerError, NotAllowed, Unavailable
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.delivery_window_state import DeliveryTotal
from kledger.native.rpc.protocol import (
    CALLS,
    SERVICE,
    VERSION_KEY,
    VERSION_MAX,
    VERSION_MIN,
    Call,
    Context,
    abort,
    agree,
    connection_options,
    serialized,
)
from kledger.native.rpc.server_streams import (
    ConsumerStream,
    LinkStream,
    ProducerStream,
    error_for_client,
)
from kledger.native.rpc.sessions import (
    BrokerSession,
    OpenSessions,
    SessionSource,
    origin_of,
)
from kledger.native.rpc.tls import TlsCredentials
from kledger.native.rpc.unary_calls import UNARY
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor

logger = logging.getLogger(__name__)

PING_INTERVAL_MIN_MS = 1_000
"""The shortest interval in which clients may send pings."""


HANDSHAKE_TIMEOUT_MS = 10_000
"""The time limit of a handshake, of TLS too; then the connection is closed."""
METADATA_BYTES_MAX = 64 * 1024
"""Bytes of the headers of one call."""


async def no_brokers() -> Sequence[str]:
    """Return the brokers of a server that is alone."""
    return ()


class StreamFactory(Protocol):
    """Creates the server's side of a stream."""

    def __call__(
        self,
        session: BrokerSession,
        context: Context,
        supervisor: Supervisor,
        config: NativeConfig,
        /,
    ) -> LinkStream[Any, Any]:
        """Create one that is not open yet."""
        ...


STREAMS: dict[str, StreamFactory] = {"Produce": ProducerStream, "Consume": ConsumerStream}


class RpcServer:
    """Serves one broker; start() it once, stop() it once."""

    def __init__(
        self,
        broker: Broker,
        *,
        supervisor: Supervisor,
        message_bytes_max: int,
        config: NativeConfig | None = None,
        versions: tuple[int, int] = (VERSION_MIN, VERSION_MAX),
        sessions: SessionSource | None = None,
        tls: TlsCredentials | None = None,
        brokers: Callable[[], Awaitable[Sequence[str]]] = no_brokers,
    ) -> None:
        """Prepare; nothing listens yet.

        Args:
            broker: serves the calls of clients when there are no sessions.
            supervisor: owns the tasks of streams.
            message_bytes_max: the largest message that is accepted.
            config: limits.
            versions: the lowest and the highest supported protocol version.
            sessions: asks each call whose it is; None: every client may do everything.
            tls: keys and certificates; None: connections are not encrypted.
            brokers: returns HOST:PORT of each broker of the cluster; nothing: the server is alone.
        """
        self._brokers = brokers
        self._sessions: SessionSource = sessions or OpenSessions(broker)
        self._tls = tls
        self._supervisor = supervisor
        self._message_bytes_max = message_bytes_max
        self._config = config or NativeConfig()
        self._deliveries = DeliveryTotal(self._config.delivery_bytes_total_max)
        self._factories: dict[str, StreamFactory] = {
            **STREAMS,
            "Consume": partial(ConsumerStream, total=self._deliveries),
        }
        self._versions = versions
        self._server: Any = None
        self._streams: set[LinkStream[Any, Any]] = set()
        self._waiting_calls: set[asyncio.Task[Any]] = set()
        self._stream_ended = Signal()

    @property
    def stream_count(self) -> int:
        """How many producers and consumers are connected."""
        return len(self._streams)

    @property
    def delivery_bytes_waiting(self) -> int:
        """Bytes of deliveries that are not written to their clients yet."""
        return self._deliveries.waiting_bytes

    async def start(
        self, host: str, port: int, *, bootstrap: tuple[str, int] | None = None
    ) -> tuple[str, int]:
        """Accept clients; return the address.

        Args:
            host: where to listen.
            port: 0: any free one.
            bootstrap: another address, on which the other workers of the server listen, too.

        Raises:
            OSError: an address cannot be bound.
        """
        config = self._config
        server = grpc.aio.server(
            maximum_concurrent_rpcs=config.streams_max,
            options=(
                *connection_options(config.keepalive_ms),
                ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MIN_MS),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.max_allowed_incoming_connections", config.max_connections),
                ("grpc.max_receive_message_length", self._message_bytes_max),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
                # A header may have an access token of some kilobytes.
                ("grpc.max_metadata_size", METADATA_BYTES_MAX),
                ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
                # Else two servers could share one port, and each would get some of the clients:
                # workers are meant to, and the parent keeps others off their ports.
                ("grpc.so_reuseport", int(bootstrap is not None)),
            ),
        )
        handlers = {name: self._handler(name, call) for name, call in CALLS.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        bound_port = self._bind(server, host, port)
        if bootstrap is not None:
            self._bind(server, *bootstrap)
        await server.start()
        self._server = server
        return host, bound_port

    def _bind(self, server: Any, host: str, port: int) -> int:
        """Return the port that was bound."""
        name = f"[{host}]" if ":" in host else host
        try:
            bound_port: int = (
                server.add_insecure_port(f"{name}:{port}")
                if self._tls is None
                else server.add_secure_port(f"{name}:{port}", self._tls.make())
            )
        except RuntimeError:
            raise OSError(f"cannot listen on {name}:{port}") from None
        return bound_port

    async def stop(self, *, grace_ms: int) -> None:
        """Refuse new calls, end every link, wait for running calls; may be repeated.

        Args:
            grace_ms: calls that take longer are cancelled.
        """
        server, self._server = self._server, None
        if server is None:
            return
        for task in self._waiting_calls:
            task.cancel()
        for stream in list(self._streams):
            stream.end(Unavailable("the server is stopping"))
        await server.stop(grace_ms / 1000)
        while self._streams:
            await self._stream_ended.wait()

    def _handler(self, name: str, call: Call) -> Any:
        make = (
            grpc.stream_stream_rpc_method_handler
            if call.is_stream
            else grpc.unary_unary_rpc_method_handler
        )
        if call.is_stream:
            behaviour = self._streaming(self._factories[name])
        elif name == "Hello":
            behaviour = self._answering(self._hello, is_versioned=False)
        else:
            row = UNARY[name]
            serve = partial(self._waiting, row.serve) if row.waits else row.serve
            behaviour = self._answering(serve)
        return make(
            behaviour,
            request_deserializer=call.request.FromString,
            response_serializer=serialized,
        )

    async def _waiting(
        self,
        serve: Callable[[Broker, Any], Awaitable[Any]],
        broker: Broker,
        request: Any,
    ) -> Any:
        """Serve a call that may wait; `stop` does not wait for it."""
        if self._server is None:
            raise Unavailable("the server is stopping")
        task = asyncio.current_task()
        assert task is not None, "a call is served by a task"
        self._waiting_calls.add(task)
        try:
            return await serve(broker, request)
        except asyncio.CancelledError:
            if self._server is not None:  # the client has cancelled it
                raise
            raise Unavailable("the server is stopping") from None
        finally:
            self._waiting_calls.discard(task)

    def _answering(
        self, serve: Callable[[Broker, Any], Awaitable[Any]], *, is_versioned: bool = True
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        """Return the gRPC handler of a call with one answer."""

        async def behaviour(request: Any, context: Context) -> Any:
            try:
                if is_versioned:
                    self._check_version(context)
                session = await self._sessions.open(origin_of(context))
                try:
                    return await serve(session.broker, request)
                finally:
                    session.close()
            except KledgerError as error:
                await abort(context, error)
            except Exception as error:  # noqa: BLE001 - the client gets it, and the log
                await abort(context, error_for_client(error))

        return behaviour

    def _streaming(self, factory: StreamFactory) -> Callable[[Any, Context], Awaitable[None]]:
        """Return the gRPC handler of a stream."""

        async def behaviour(_requests: Any, context: Context) -> None:
            try:
                self._check_version(context)
                session = await self._sessions.open(origin_of(context))
                try:
                    await self._run_stream(factory, session, context)
                finally:
                    session.close()
            except KledgerError as error:
                await abort(context, error)
            except Exception as error:  # noqa: BLE001 - the client gets it, and the log
                await abort(context, error_for_client(error))

        return behaviour

    async def _run_stream(
        self, factory: StreamFactory, session: BrokerSession, context: Context
    ) -> None:
        stream = factory(session, context, self._supervisor, self._config)
        self._streams.add(stream)
        session.end_at_expiry(stream.end)
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)
            self._stream_ended.notify()

    def _check_version(self, context: Context) -> None:
        """Refuse an unsupported version: the server may have been replaced since Hello."""
        stated = dict(context.invocation_metadata() or ()).get(VERSION_KEY, "")
        spoken = {str(each) for each in range(self._versions[0], self._versions[1] + 1)}
        if stated not in spoken:
            raise NotAllowed(
                f"the call is of protocol version {stated or 'none'}, "
                f"the server speaks {self._versions[0]} to {self._versions[1]}"
            )

    async def _hello(self, _broker: Broker, request: pb.HelloRequest) -> pb.HelloResponse:
        version = agree(client=(request.version_min, request.version_max), server=self._versions)
        logger.debug("native client %.100r speaks version %d", request.client, version)
        return pb.HelloResponse(
            version_min=self._versions[0],
            version_max=self._versions[1],
            version=version,
            message_bytes_max=self._message_bytes_max,
            brokers=await self._brokers(),
        )
