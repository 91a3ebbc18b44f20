"""The listener: where it listens, which clients it refuses, how it stops."""

import asyncio
import socket
from contextlib import closing

import pytest
import uvloop

from kledger.native.config import NativeConfig
from kledger.native.errors import Unavailable
from kledger.native.rpc.client import RpcClient
from kledger.native.rpc.server import RpcServer
from kledger.runtime.tasks import Supervisor
from kledger.workers.reserved_ports import ReservedPorts
from tests.native.recording_broker import Endings, RecordingBroker, batch
from tests.native.rpc.connected_pair import GRACE_MS, TEST_SECONDS, PatientClock, pair, serving


async def test_taken_address_is_an_error_even_if_the_other_shares_it() -> None:
    async with serving() as (_, port):
        second = RpcServer(RecordingBroker(), supervisor=Supervisor(), message_bytes_max=1 << 20)
        with pytest.raises(OSError, match=str(port)):
            await second.start("127.0.0.1", port)
        await second.stop(grace_ms=0)


async def test_workers_share_an_address_beside_their_own() -> None:
    with closing(ReservedPorts()) as ports:
        host, port = bootstrap = ports.reserve("native", ("127.0.0.1", 0))
        servers = []
        for _ in range(2):
            server = RpcServer(
                RecordingBroker(), supervisor=Supervisor(), message_bytes_max=1 << 20
            )
            servers.append(server)
            own = await server.start(host, 0, bootstrap=bootstrap)
            client = RpcClient(f"{own[0]}:{own[1]}", clock=PatientClock())
            await client.connect()
            await client.close()
        while servers:  # as long as one is left
            client = RpcClient(f"{host}:{port}", clock=PatientClock())
            await client.connect(retry_ms=None)
            await client.close()
            await servers.pop().stop(grace_ms=GRACE_MS)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
async def test_address_of_version_6_is_served() -> None:
    supervisor = Supervisor()
    server = RpcServer(RecordingBroker(), supervisor=supervisor, message_bytes_max=1 << 20)
    try:
        host, port = await server.start("::1", 0)
    except OSError:
        pytest.skip("no IPv6 here")
    client = RpcClient(f"[{host}]:{port}", clock=PatientClock())
    await client.connect()
    await client.close()
    await server.stop(grace_ms=0)
    await supervisor.close()


async def test_streams_beyond_the_limit_are_refused() -> None:
    async with pair(NativeConfig(streams_max=2)) as both:
        for name in ("a", "b"):
            await both.client.open_producer("t", 0, name=name, on_ended=Endings())
        with pytest.raises(Unavailable, match="limit"):
            await both.client.open_producer("t", 0, name="c", on_ended=Endings())
        with pytest.raises(Unavailable, match="limit"):
            await both.client.topics()


async def test_connections_beyond_the_limit_are_refused() -> None:
    async with pair(NativeConfig(max_connections=1)) as both:
        refused = RpcClient(both.address)
        with pytest.raises(Unavailable):
            await refused.connect(timeout_ms=500)
        await refused.close()
        assert ["a", "ü"] == await both.client.topics()
        await both.client.close()
        other = RpcClient(both.address, clock=PatientClock())
        await other.connect(retry_ms=None)  # the server notices the end later
        await other.close()


async def test_stop_waits_for_calls_and_cancels_long_ones() -> None:
    async with pair() as both:
        both.broker.hold_open = hold = asyncio.Event()
        asking = asyncio.ensure_future(both.client.topics())
        await both.broker.happened("topics")
        stopping = asyncio.ensure_future(both.server.stop(grace_ms=GRACE_MS))
        await asyncio.sleep(0)
        hold.set()
        assert ["a", "ü"] == await asking
        await stopping
    async with pair() as both:
        both.broker.hold_open = hold = asyncio.Event()
        asking = asyncio.ensure_future(both.client.topics())
        await both.broker.happened("topics")
        await both.server.stop(grace_ms=50)
        with pytest.raises(Unavailable):
            await asking


def test_transport_runs_on_the_loop_of_the_server() -> None:
    """gRPC wakes the event loop through a socket of its own; uvloop must be woken, too."""

    async def talk() -> list[bytes]:
        async with pair() as both:
            link = await both.client.open_producer("t", 0, name="p", on_ended=Endings())
            await asyncio.gather(*(link.send(batch(b"%d" % n)) for n in range(500)))
            await link.close()
            return both.broker.batches

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert [batch(b"%d" % n) for n in range(500)] == runner.run(talk())


async def test_server_and_client_may_live_in_different_threads() -> None:
    """One process may have several loops with gRPC on them."""

    def elsewhere(port: int) -> list[str]:
        async def ask() -> list[str]:
            async with asyncio.timeout(TEST_SECONDS):
                client = RpcClient(f"127.0.0.1:{port}", clock=PatientClock())
                await client.connect()
                names = await client.topics()
                await client.close()
                return names

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(ask())

    async with asyncio.timeout(TEST_SECONDS), serving() as (_, port):
        assert ["a", "ü"] == await asyncio.to_thread(elsewhere, port)
