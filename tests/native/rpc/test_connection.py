"""A lost and restored connection, and versions without overlap."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import grpc.aio
import pytest

from kledger.native.errors import AlreadyClosed, KledgerError, NotAllowed, Unavailable
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.client import RpcClient
from kledger.native.rpc.connection import RECONNECT_FIRST_MS, RECONNECT_MAX_MS, RpcConnection
from kledger.runtime.clock import SystemClock
from kledger.runtime.tasks import Supervisor
from tests.native.recording_broker import Endings, RecordingBroker, batch
from tests.native.rpc.connected_pair import TEST_SECONDS, PatientClock, serving

PAUSES = 8
TIMEOUT_MS = 600_000
"""Longer than any test takes."""


class ImpatientClock(SystemClock):
    """Keeps pauses between tries and makes them short."""

    def __init__(self) -> None:
        self.pauses: list[int] = []
        self.enough = asyncio.Event()

    async def sleep(self, ms: int) -> None:
        if ms <= RECONNECT_MAX_MS:
            self.pauses.append(ms)
            ms = 1
            if len(self.pauses) == PAUSES:
                self.enough.set()
        await super().sleep(ms)


class LargestEntropy:
    """Takes as little off a pause as can be."""

    def token(self, size: int) -> bytes:
        return bytes(size)

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=0)

    def below(self, limit: int) -> int:
        return 0


def connection(address: str, clock: SystemClock | None = None) -> RpcConnection:
    return RpcConnection(
        address,
        clock=clock or SystemClock(),
        entropy=LargestEntropy(),
        supervisor=Supervisor(),
    )


async def test_connection_is_restored_with_the_server(port: int) -> None:
    ended = Endings()
    broker = RecordingBroker()
    async with asyncio.timeout(TEST_SECONDS):
        async with serving(broker, port=port):
            client = RpcClient(f"127.0.0.1:{port}")
            await client.connect(retry_ms=None)
            link = await client.open_producer("orders", 0, name="p", on_ended=ended)
            await link.send(batch(b"a"))
        assert isinstance(await ended.first(), Unavailable)
        with pytest.raises(Unavailable):
            await client.topics()
        reopening = asyncio.ensure_future(
            client.open_producer("orders", 0, name="q", on_ended=ended)
        )
        await asyncio.sleep(0)
        async with serving(broker, port=port):
            link = await reopening
            await link.send(batch(b"b"))
            await client.close()
    assert [batch(b"a"), batch(b"b")] == broker.batches


async def test_attempts_have_growing_delays_while_a_call_waits() -> None:
    clock = ImpatientClock()
    link = connection("127.0.0.1:1", clock)
    waiting = [asyncio.ensure_future(link.ready(TIMEOUT_MS)) for _ in range(3)]
    async with asyncio.timeout(TEST_SECONDS):
        await clock.enough.wait()
    trying = link._reconnect_task
    assert trying is not None
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    expected = [min(RECONNECT_FIRST_MS << n, RECONNECT_MAX_MS) for n in range(PAUSES)]
    assert expected == clock.pauses[:PAUSES], "one try for all who wait"
    await trying  # no call waits any more
    await link.close()
    await link.supervisor.close()


async def test_all_addresses_are_tried_before_a_delay() -> None:
    clock = ImpatientClock()
    link = RpcConnection(
        "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3",
        clock=clock, entropy=LargestEntropy(), supervisor=Supervisor(),
    )  # fmt: skip
    tried: list[str] = []
    hello = link._hello

    async def noted() -> KledgerError | None:
        tried.append(link.address[-1])
        return await hello()

    link._hello = noted  # type: ignore[method-assign]
    waiting = asyncio.ensure_future(link.ready(TIMEOUT_MS))
    async with asyncio.timeout(TEST_SECONDS):
        await clock.enough.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert "123" * PAUSES == "".join(tried)[: 3 * PAUSES]
    await link.close()
    await link.supervisor.close()


async def test_lost_server_is_found_at_its_other_address(port: int) -> None:
    ended = Endings()
    broker = RecordingBroker()
    async with asyncio.timeout(TEST_SECONDS), serving(broker) as (_, other):
        async with serving(broker, port=port):
            client = RpcClient(f"127.0.0.1:{port}", f"127.0.0.1:{other}")
            await client.connect(retry_ms=None)
            link = await client.open_producer("orders", 0, name="p", on_ended=ended)
            await link.send(batch(b"a"))
        assert isinstance(await ended.first(), Unavailable)
        with pytest.raises(Unavailable):  # it is noticed by a call
            await client.topics()
        link = await client.open_producer("orders", 0, name="q", on_ended=ended)
        await link.send(batch(b"b"))
        await client.close()
    assert [batch(b"a"), batch(b"b")] == broker.batches


class LeapingClock(ImpatientClock):
    """A pause takes no time and moves the clock."""

    def monotonic_ms(self) -> int:
        return sum(self.pauses)


async def test_refused_first_connection_fails_within_a_second() -> None:
    """It was retried for ten seconds, while a command showed nothing."""
    clock = LeapingClock()
    client = RpcClient("127.0.0.1:1", clock=clock, entropy=LargestEntropy())
    async with asyncio.timeout(TEST_SECONDS):
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
            await client.connect()
        assert [100, 200, 400] == clock.pauses
        patient = asyncio.ensure_future(client.connect(timeout_ms=TIMEOUT_MS, retry_ms=None))
        await clock.enough.wait()
        assert not patient.done()
        await client.close()
        with pytest.raises(AlreadyClosed):
            await patient


@asynccontextmanager
async def silent(port: int = 0) -> AsyncIterator[int]:
    """Accept connections and say nothing."""

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", port)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_first_connection_waits_for_a_silent_server_as_a_later_one_does(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed after the first try, of five seconds; a lost connection is tried for longer."""
    monkeypatch.setattr("kledger.native.rpc.connection.HELLO_TIMEOUT_MS", 50)
    monkeypatch.setattr("kledger.native.rpc.connection.REFUSED_WITHIN_MS", 20)
    clock = ImpatientClock()
    client = RpcClient(f"127.0.0.1:{port}", clock=clock, operation_timeout_ms=TIMEOUT_MS)
    async with asyncio.timeout(TEST_SECONDS):
        async with silent(port):
            connecting = asyncio.ensure_future(client.connect(retry_ms=1))
            await clock.enough.wait()
            assert not connecting.done()
        monkeypatch.setattr("kledger.native.rpc.connection.HELLO_TIMEOUT_MS", 1_000 * TEST_SECONDS)
        async with serving(port=port):
            await connecting
            assert ["a", "ü"] == await client.topics()
            await client.close()


async def test_connecting_to_a_silent_server_ends_within_the_operation_timeout() -> None:
    async with asyncio.timeout(TEST_SECONDS), silent() as port:
        client = RpcClient(f"127.0.0.1:{port}", operation_timeout_ms=20)
        for call in (client.connect(), client.topics()):
            with pytest.raises(Unavailable, match="no connection within 20 ms"):
                await call
        with pytest.raises(Unavailable, match="no connection within 20 ms"):
            await client.open_producer("orders", 0, name="p", on_ended=Endings())
        await client.close()


async def test_call_that_is_not_answered_ends_within_the_operation_timeout() -> None:
    broker = RecordingBroker()
    async with asyncio.timeout(TEST_SECONDS), serving(broker) as (_, port):
        client = RpcClient(f"127.0.0.1:{port}", operation_timeout_ms=50)
        await client._connection.ready(TIMEOUT_MS)
        broker.hold_open = asyncio.Event()
        with pytest.raises(Unavailable):
            await client.topics()
        with pytest.raises(Unavailable, match="not open within 50 ms"):
            await client.open_producer("orders", 0, name="p", on_ended=Endings())
        broker.hold_open.set()
        await client.close()


async def test_closing_ends_every_wait() -> None:
    link = connection("127.0.0.1:1")
    waiting = asyncio.ensure_future(link.ready(TIMEOUT_MS))
    await asyncio.sleep(0)
    await link.close()
    with pytest.raises(AlreadyClosed):
        await waiting
    with pytest.raises(AlreadyClosed):
        await link.ready()
    await link.supervisor.close()


@pytest.mark.parametrize(("client", "server"), [((1, 1), (2, 3)), ((2, 2), (1, 1))])
async def test_missing_common_version_raises_at_once(
    client: tuple[int, int], server: tuple[int, int]
) -> None:
    async with asyncio.timeout(TEST_SECONDS), serving(versions=server) as (_, port):
        asking = RpcClient(f"127.0.0.1:{port}", clock=PatientClock(), versions=client)
        with pytest.raises(NotAllowed) as caught:
            await asking.connect()
        assert (
            f"no common protocol version: the client speaks {client[0]} to {client[1]}, "
            f"the server {server[0]} to {server[1]}"
        ) == str(caught.value)
        await asking.close()


async def test_highest_common_version_is_agreed_on_and_used() -> None:
    async with asyncio.timeout(TEST_SECONDS), serving(versions=(2, 4)) as (_, port):
        asking = RpcClient(f"127.0.0.1:{port}", clock=PatientClock(), versions=(1, 3))
        await asking.connect()
        assert 3 == asking._connection.version
        assert ["a", "ü"] == await asking.topics()
        await asking.close()


async def test_replacing_server_of_another_version_is_detected(port: int) -> None:
    """gRPC reconnects by itself, so a call may reach a server without a Hello."""
    broker = RecordingBroker()
    async with asyncio.timeout(TEST_SECONDS):
        async with serving(broker, port=port):
            client = RpcClient(f"127.0.0.1:{port}", clock=PatientClock())
            await client.connect()
        async with serving(broker, port=port, versions=(2, 2)):
            await client._connection._channel.channel_ready()
            with pytest.raises(NotAllowed, match="is of protocol version 1, the server speaks 2"):
                await client.topics()
            await client.close()
    assert [] == broker.calls


async def test_call_without_a_version_is_refused() -> None:
    async with (
        asyncio.timeout(TEST_SECONDS),
        serving() as (_, port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        call = channel.unary_unary("/kledger.native.v1.Broker/ListTopics")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(pb.ListTopicsRequest().SerializeToString())
    assert grpc.StatusCode.PERMISSION_DENIED == caught.value.code()
    assert "not_allowed" == dict(caught.value.trailing_metadata())["kledger-error"]
