"""Connections between brokers by TCP: who is trusted, who is refused, and what is left of them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest
import uvloop

from kledger.gateway.peers.peer_handshake_state import HELLO_BYTES, ConnectingHandshake
from kledger.gateway.peers.peer_link import PeerConnection
from kledger.gateway.peers.tcp_peers import (
    CONNECT_TIMEOUT_MS,
    HANDSHAKE_TIMEOUT_MS,
    HANDSHAKES_MAX,
    TcpPeers,
    TcpPeerServer,
)
from kledger.runtime.entropy import SeededEntropy
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.gateway.running import until

GUARD_S = 60
SECRET = bytes(range(32))
HOST = "127.0.0.1"


class EchoConnection(asyncio.BufferedProtocol):
    """What a broker serves another one with: it sends back what it gets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.received = bytearray()
        self.is_lost = False
        self._buffer = bytearray(1024)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        assert self._transport is not None
        self.received += self._buffer[:nbytes]
        self._transport.write(bytes(self._buffer[:nbytes]))

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def end(self) -> None:
        assert self._transport is not None
        self._transport.abort()


class ReceivingConnection(PeerConnection):
    """What a broker asks another one with: it keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.received = bytearray()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += data


@dataclass
class BrokerOfTest:
    """Broker 2, which accepts others.

    Attributes:
        served: the connections that it has taken for those of brokers.
        refused: why it has refused others.
    """

    clock: ManualClock
    server: TcpPeerServer
    peers: TcpPeers
    served: list[EchoConnection] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        return self.peers.address

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect as some program."""
        return await asyncio.open_connection(*self.address)

    async def has_refused(self, count: int = 1) -> str:
        """Wait until so many connections are refused; return the last reason."""
        async with asyncio.timeout(GUARD_S):
            await until(lambda: len(self.refused) >= count)
        assert count == len(self.refused)
        return self.refused[-1]


def peers_of(
    broker_id: int,
    clock: ManualClock,
    address_of: Callable[[int], tuple[str, int] | None] = lambda _: None,
    secret: bytes = SECRET,
) -> TcpPeers:
    return TcpPeers(
        broker_id,
        (HOST, 0),
        address_of=address_of,
        secret=secret,
        entropy=SeededEntropy(broker_id),
        timers=Timers(clock, Supervisor()),
    )


@asynccontextmanager
async def accepting() -> AsyncIterator[BrokerOfTest]:
    clock = ManualClock()
    peers = peers_of(2, clock)
    served: list[EchoConnection] = []
    refused: list[str] = []

    def serve(name: str) -> EchoConnection:
        served.append(EchoConnection(name))
        return served[-1]

    server = await peers.listen(serve, refused=refused.append, backlog=100)
    try:
        yield BrokerOfTest(clock, server, peers, served, refused)
    finally:
        server.close()
        for each in served:
            each.end()


async def test_a_broker_that_proves_itself_is_served() -> None:
    async with accepting() as broker:
        one = peers_of(1, broker.clock, lambda _: broker.address)
        connection = ReceivingConnection()
        await one.connect_to(2)(connection)
        assert connection.transport is not None
        connection.transport.write(b"a request")
        async with asyncio.timeout(GUARD_S):
            await until(lambda: bytes(connection.received) == b"a request")
        (served,) = broker.served
        assert ("broker 1", b"a request") == (served.name, bytes(served.received))
        assert 0 == broker.server.unproved_count
        broker.clock.advance(HANDSHAKE_TIMEOUT_MS)
        await asyncio.sleep(0)
        assert not connection.is_closed
        connection.abort()
        async with asyncio.timeout(GUARD_S):
            await until(lambda: served.is_lost)
        assert [] == broker.refused


async def test_the_end_of_a_served_connection_is_noticed() -> None:
    async with accepting() as broker:
        connection = ReceivingConnection()
        await peers_of(1, broker.clock, lambda _: broker.address).connect_to(2)(connection)
        async with asyncio.timeout(GUARD_S):
            await until(lambda: bool(broker.served))
            broker.served[0].end()
            await until(lambda: connection.is_closed)


async def test_another_secret_is_refused_on_both_sides() -> None:
    async with accepting() as broker:
        one = peers_of(1, broker.clock, lambda _: broker.address, secret=bytes(32))
        with pytest.raises(ConnectionRefusedError, match="broker 2: it has another secret"):
            await one.connect_to(2)(PeerConnection())
        reason = await broker.has_refused()
        assert "broker 1: expected a proof by the secret of this cluster" in reason
        assert reason.startswith(f"{HOST}:")
        assert [] == broker.served


async def test_another_broker_at_the_address_is_refused() -> None:
    async with accepting() as broker:
        one = peers_of(1, broker.clock, lambda _: broker.address)
        with pytest.raises(ConnectionRefusedError, match="broker 3: another broker is at its"):
            await one.connect_to(3)(PeerConnection())
        assert "broker 1 wants broker 3, this is broker 2" in await broker.has_refused()


async def test_a_broker_that_has_never_started_is_away() -> None:
    one = peers_of(1, ManualClock())
    with pytest.raises(OSError, match="broker 2: it has no address yet"):
        await one.connect_to(2)(PeerConnection())


async def test_a_broker_is_found_where_it_has_moved_to() -> None:
    addresses = dict[int, tuple[str, int]]()
    async with accepting() as before, accepting() as after:
        one = peers_of(1, before.clock, addresses.get)
        connect = one.connect_to(2)
        for broker in (before, after):
            addresses[2] = broker.address
            connection = ReceivingConnection()
            await connect(connection)
            async with asyncio.timeout(GUARD_S):
                await until(lambda served=broker.served: len(served) == 1)  # type: ignore[misc]
            connection.abort()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01", id="TLS"),
        pytest.param(b"\0\0\0\x1e\0\x12\0\x03\0\0\0\1", id="Kafka"),
        pytest.param(bytes(100_000), id="much"),
    ],
)
async def test_other_programs_are_refused_at_once(sent: bytes) -> None:
    async with accepting() as broker:
        reader, writer = await broker.raw()
        writer.write(sent)
        reason = await broker.has_refused()
        assert "expected the handshake of a broker, got " in reason
        async with asyncio.timeout(GUARD_S):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
        writer.close()
        assert [] == broker.served


async def test_a_port_scanner_is_counted() -> None:
    async with accepting() as broker:
        _, writer = await broker.raw()
        writer.close()
        assert f"it ended after 0 of {HELLO_BYTES} bytes" in await broker.has_refused()
        assert 0 == broker.server.unproved_count


async def test_a_program_that_resets_its_connection_is_counted() -> None:
    async with accepting() as broker:
        _, writer = await broker.raw()
        async with asyncio.timeout(GUARD_S):
            await until(lambda: broker.server.unproved_count == 1)
        writer.transport.abort()
        await broker.has_refused()
        assert 0 == broker.server.unproved_count


async def test_a_silent_program_is_refused_when_its_time_is_over() -> None:
    async with accepting() as broker:
        reader, writer = await broker.raw()
        async with asyncio.timeout(GUARD_S):
            await until(lambda: broker.server.unproved_count == 1)
        broker.clock.advance(HANDSHAKE_TIMEOUT_MS - 1)
        await asyncio.sleep(0)
        assert [] == broker.refused
        broker.clock.advance(1)
        reason = await broker.has_refused()
        assert f"expected a handshake within {HANDSHAKE_TIMEOUT_MS} ms" in reason
        async with asyncio.timeout(GUARD_S):
            assert b"" == await reader.read()
        writer.close()


async def test_bytes_behind_the_proof_do_not_pass_for_requests_before_it_is_checked() -> None:
    async with accepting() as broker:
        _, writer = await broker.raw()
        hello = ConnectingHandshake(source=1, target=2, secret=SECRET, nonce=bytes(32)).hello()
        writer.write(hello + bytes(32) + b"\0\0\0\4abcd")
        assert "expected a proof" in await broker.has_refused()
        assert [] == broker.served
        writer.close()


async def test_many_silent_programs_leave_room_for_a_broker() -> None:
    async with accepting() as broker:
        writers = [(await broker.raw())[1] for _ in range(HANDSHAKES_MAX)]
        async with asyncio.timeout(GUARD_S):
            await until(lambda: broker.server.unproved_count == HANDSHAKES_MAX)
        connection = PeerConnection()
        await peers_of(1, broker.clock, lambda _: broker.address).connect_to(2)(connection)
        assert f"more than {HANDSHAKES_MAX} connections" in await broker.has_refused()
        assert HANDSHAKES_MAX - 1 == broker.server.unproved_count
        connection.abort()
        for each in writers:
            each.close()


async def test_closing_ends_what_is_no_brokers_yet() -> None:
    async with accepting() as broker:
        reader, writer = await broker.raw()
        async with asyncio.timeout(GUARD_S):
            await until(lambda: broker.server.unproved_count == 1)
            broker.server.close()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
        writer.close()
        assert [] == broker.refused


async def test_a_peer_that_accepts_and_is_silent_is_away_when_its_time_is_over() -> None:
    clock = ManualClock()
    with socket.create_server((HOST, 0)) as silent:
        one = peers_of(1, clock, lambda _: silent.getsockname())
        connection = PeerConnection()
        connecting = asyncio.ensure_future(one.connect_to(2)(connection))
        silent.setblocking(False)
        async with asyncio.timeout(GUARD_S):
            accepted, _ = await asyncio.get_running_loop().sock_accept(silent)
            with accepted:
                accepted.setblocking(False)
                hello = await asyncio.get_running_loop().sock_recv(accepted, HELLO_BYTES)
                assert HELLO_BYTES == len(hello)
                clock.advance(CONNECT_TIMEOUT_MS)
                with pytest.raises(TimeoutError, match=f"not done within {CONNECT_TIMEOUT_MS} ms"):
                    await connecting


async def test_a_peer_that_hangs_up_during_the_handshake_is_away() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, HOST, 0)
    async with server:
        address = server.sockets[0].getsockname()[:2]
        one = peers_of(1, ManualClock(), lambda _: address)
        async with asyncio.timeout(GUARD_S):
            with pytest.raises(ConnectionError):
                await one.connect_to(2)(PeerConnection())


def test_what_is_advertised_is_what_others_connect_to() -> None:
    clock = ManualClock()
    peers = TcpPeers(
        1,
        (HOST, 9),
        advertised=("broker.example", 19),
        address_of=lambda _: None,
        secret=SECRET,
        entropy=SeededEntropy(1),
        timers=Timers(clock, Supervisor()),
    )
    assert ("broker.example", 19) == peers.address
    assert SECRET.hex() not in repr(vars(peers)["_listening"])


@pytest.mark.parametrize(
    "story",
    [
        test_a_broker_that_proves_itself_is_served,
        test_the_end_of_a_served_connection_is_noticed,
        test_another_secret_is_refused_on_both_sides,
        test_bytes_behind_the_proof_do_not_pass_for_requests_before_it_is_checked,
        test_a_silent_program_is_refused_when_its_time_is_over,
    ],
)
def test_it_is_so_on_the_loop_of_a_server_too(
    story: Callable[[], Coroutine[None, None, None]],
) -> None:
    """A protocol of another kind takes a socket over."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
