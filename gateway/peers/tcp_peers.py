"""TcpPeers: the brokers of a cluster on several machines, by TCP.

Rule: the handshake of `peer_handshake_state` comes before every other byte; a connection whose
other end does not prove itself in time is closed. A buffer has exactly the bytes that are expected
next, so bytes behind the handshake are left for the connection. The address of a broker is looked
up for every new connection, as it may have moved to another machine.
Must not know: requests, why brokers move.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from kledger.gateway.peers.peer_handshake_state import (
    ANSWER_BYTES,
    HELLO_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    AcceptingHandshake,
    ConnectingHandshake,
    HandshakeRefused,
)
from kledger.gateway.peers.peer_link import Connect, PeerConnection
from kledger.gateway.peers.peer_transport import MakePeerConnection
from kledger.runtime.entropy import Entropy
from kledger.runtime.timers import TimerHandle, Timers, within

CONNECT_TIMEOUT_MS: Final = 5_000
"""How long a connection to another broker may take, with its handshake."""
HANDSHAKE_TIMEOUT_MS: Final = 5_000
"""How long the other end has to prove itself."""
HANDSHAKES_MAX: Final = 64
"""Connections that have not proved themselves yet; one more ends the oldest of them."""
KEEPALIVE_IDLE_S: Final = 5
KEEPALIVE_INTERVAL_S: Final = 5
KEEPALIVE_COUNT: Final = 3
SILENCE_MS: Final = 20_000
"""After so long without a sign of the other machine a connection ends. It is longer than a broker
without a database stays the owner of its data: what it has read by then is without effect."""


class TcpPeers:
    """How one broker reaches the others; a `PeerTransport`."""

    def __init__(
        self,
        broker_id: int,
        listening: tuple[str, int],
        *,
        advertised: tuple[str, int] = ("", 0),
        address_of: Callable[[int], tuple[str, int] | None],
        secret: bytes,
        entropy: Entropy,
        timers: Timers,
    ) -> None:
        """Prepare.

        Args:
            broker_id: of this broker.
            listening: host and port on which it accepts the others, together with sockets that
                have reserved the port; port 0 is any free one.
            advertised: what the others connect to, if it is not that.
            address_of: returns host and port of another broker; None: it has none yet.
            secret: of the cluster; a peer that proves that it knows the secret is trusted.
            entropy: makes nonces.
            timers: of this broker.
        """
        self._broker_id = broker_id
        self._listening = listening
        self._advertised = advertised
        self._bound_port = listening[1]
        self._address_of = address_of
        self._secret = secret
        self._entropy = entropy
        self._timers = timers

    @property
    def address(self) -> tuple[str, int]:
        """What the others connect to; of a broker that listens."""
        host, port = self._advertised
        return host or self._listening[0], port or self._bound_port

    def connect_to(self, broker_id: int) -> Connect:
        """Return what connects to another broker, wherever it is then."""

        async def connect(connection: PeerConnection) -> object:
            address = self._address_of(broker_id)
            if address is None:
                raise ConnectionRefusedError(f"broker {broker_id}: it has no address yet")
            handshake = ConnectingHandshake(
                source=self._broker_id,
                target=broker_id,
                secret=self._secret,
                nonce=self._entropy.token(NONCE_BYTES),
            )
            protocol = _Connecting(handshake, connection)
            try:
                await within(self._timers, CONNECT_TIMEOUT_MS, protocol.open(*address))
            except BaseException:
                protocol.abort()
                raise
            return connection

        return connect

    async def listen(
        self, make_connection: MakePeerConnection, *, refused: Callable[[str], None], backlog: int
    ) -> "TcpPeerServer":
        """Accept the connections of brokers that prove themselves."""
        server = TcpPeerServer(
            lambda: AcceptingHandshake(
                broker_id=self._broker_id,
                secret=self._secret,
                nonce=self._entropy.token(NONCE_BYTES),
            ),
            make_connection,
            refused,
            self._timers,
        )
        self._bound_port = await server.start(*self._listening, backlog)
        return server


class TcpPeerServer:
    """Accepts connections, and hands over those of brokers."""

    def __init__(
        self,
        begin_handshake: Callable[[], AcceptingHandshake],
        make_connection: MakePeerConnection,
        refused: Callable[[str], None],
        timers: Timers,
    ) -> None:
        self.begin_handshake = begin_handshake
        self.make_connection = make_connection
        self.refused = refused
        self.timers = timers
        self._server: asyncio.Server | None = None
        self._unproved: dict[_Accepting, None] = {}
        """The oldest first."""

    async def start(self, host: str, port: int, backlog: int) -> int:
        """Listen; return the port."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Accepting(self), host, port, backlog=backlog, reuse_port=True
        )
        bound_port: int = self._server.sockets[0].getsockname()[1]
        return bound_port

    def begin(self, connection: "_Accepting") -> None:
        """Take a connection that has not proved itself."""
        self._unproved[connection] = None
        if len(self._unproved) > HANDSHAKES_MAX:
            next(iter(self._unproved)).refuse(
                f"more than {HANDSHAKES_MAX} connections have not proved themselves"
            )

    def forget(self, connection: "_Accepting") -> None:
        """Forget a connection that has proved itself, or has ended."""
        self._unproved.pop(connection, None)

    @property
    def unproved_count(self) -> int:
        """How many connections have not proved themselves yet."""
        return len(self._unproved)

    def close(self) -> None:
        """Accept no more, and close those that are no broker's yet."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._unproved):
            connection.end()


class _HandshakeProtocol(asyncio.BufferedProtocol):
    """Reads messages of known sizes, each into a buffer of exactly that size."""

    def __init__(self, size: int) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = bytearray(size)
        self.filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, and notice when the other machine is gone."""
        self.transport = cast(asyncio.Transport, transport)
        _keep_alive(transport.get_extra_info("socket"))

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return where the rest of the message goes."""
        return memoryview(self.received)[self.filled :]

    def expect(self, size: int) -> None:
        """Begin the next message."""
        self.received, self.filled = bytearray(size), 0

    def take(self, nbytes: int) -> bytes | None:
        """Take bytes; return the message when it is complete."""
        self.filled += nbytes
        return bytes(self.received) if self.filled == len(self.received) else None

    def abort(self) -> None:
        """End the connection."""
        if self.transport is not None:
            self.transport.abort()


class _Accepting(_HandshakeProtocol):
    """A connection that has not proved itself yet."""

    def __init__(self, server: TcpPeerServer) -> None:
        super().__init__(HELLO_BYTES)
        self._server = server
        self._handshake = server.begin_handshake()
        self._deadline: TimerHandle | None = None
        self._peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give it some time."""
        super().connection_made(transport)
        name = transport.get_extra_info("peername")
        self._peer = f"{name[0]}:{name[1]}" if name else "?"
        self._deadline = self._server.timers.call_after(
            HANDSHAKE_TIMEOUT_MS,
            lambda: self.refuse(
                f"expected a handshake within {HANDSHAKE_TIMEOUT_MS} ms, got {self.filled} of "
                f"{len(self.received)} bytes"
            ),
        )
        self._server.begin(self)

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes of the hello, then of the proof."""
        try:
            message = self.take(nbytes)
            if message is None:
                if len(self.received) == HELLO_BYTES:
                    self._handshake.check_beginning(bytes(self.received[: self.filled]))
            elif len(message) == HELLO_BYTES:
                self._write(self._handshake.challenge(message))
                self.expect(PROOF_BYTES)
            else:
                self._trust(self._handshake.verdict(message))
        except HandshakeRefused as error:
            self._write(error.answer)
            self.refuse(str(error))

    def _trust(self, answer: bytes) -> None:
        """Hand the connection over."""
        assert self.transport is not None, "not connected"
        self._settle()
        connection = self._server.make_connection(f"broker {self._handshake.source}")
        self._write(answer)
        self.transport.set_protocol(connection)
        connection.connection_made(self.transport)

    def _write(self, content: bytes) -> None:
        if self.transport is not None and content:
            self.transport.write(content)

    def refuse(self, reason: str) -> None:
        """Close, when what was written is sent, and say why."""
        if not self._settle():
            return
        self._server.refused(f"{self._peer}: {reason}")
        self.expect(1)
        if self.transport is not None:
            self.transport.close()

    def end(self) -> None:
        """Close without a word."""
        self._settle()
        self.abort()

    def _settle(self) -> bool:
        """Count it no more; return whether it did."""
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()
        self._server.forget(self)
        return deadline is not None

    def eof_received(self) -> bool:
        """Close: the other end has gone before it was trusted."""
        self.refuse(f"it ended after {self.filled} of {len(self.received)} bytes")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Forget it."""
        if self._settle():
            self._server.refused(f"{self._peer}: {error or 'it has ended'}")


class _Connecting(_HandshakeProtocol):
    """A connection to another broker until both trust each other."""

    def __init__(self, handshake: ConnectingHandshake, connection: PeerConnection) -> None:
        super().__init__(ANSWER_BYTES)
        self._handshake = handshake
        self._connection = connection
        self._has_proved = False
        self._trusted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self, host: str, port: int) -> None:
        """Connect, and return when both trust each other. Raises OSError: they do not."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, host, port)
        await self._trusted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the hello."""
        super().connection_made(transport)
        cast(asyncio.Transport, transport).write(self._handshake.hello())

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes of the challenge, then of the proof."""
        message = self.take(nbytes)
        if message is None or self.transport is None:
            return
        try:
            if self._has_proved:
                self._handshake.check(message)
                self._hand_over(self.transport)
            else:
                self._has_proved = True
                self.transport.write(self._handshake.prove(message))
                self.expect(ANSWER_BYTES)
        except HandshakeRefused as error:
            self._fail(ConnectionRefusedError(str(error)))
            self.expect(1)
            self.abort()

    def _hand_over(self, transport: asyncio.Transport) -> None:
        transport.set_protocol(self._connection)
        self._connection.connection_made(transport)
        if not self._trusted.done():
            self._trusted.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail: the other end does not say why."""
        self._fail(ConnectionAbortedError(f"it ended during the handshake: {error or 'closed'}"))

    def eof_received(self) -> bool:
        """Close: the other end has gone."""
        return False

    def _fail(self, error: OSError) -> None:
        if not self._trusted.done():
            self._trusted.set_exception(error)
            self._trusted.exception()  # retrieved, as no caller may be waiting for it


def _keep_alive(connected: socket.socket | None) -> None:
    """Let the kernel end a connection whose other machine does not answer any more."""
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)
