"""Listening, and the orderly end."""

import asyncio
import logging
import socket
from contextlib import closing

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.net.server import GatewayServer
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from kledger.workers.reserved_ports import ReservedPorts
from tests.gateway.running import batch, fetch, produce, running_gateway, until
from tests.gateway.wire_client import WireClient


async def test_advertised_port_is_the_bound_one_unless_it_was_set() -> None:
    async with running_gateway() as gateway:
        assert gateway.port == gateway.services.config.advertised_port > 0
    async with running_gateway(GatewayConfig(advertised_port=9)) as gateway:
        assert 9 == gateway.services.config.advertised_port != gateway.port


async def test_advertised_host_is_the_listeners_unless_it_was_set() -> None:
    async with running_gateway() as gateway:
        assert "127.0.0.1" == gateway.services.config.advertised_host
    async with running_gateway(GatewayConfig(advertised_host="broker.example")) as gateway:
        assert "broker.example" == gateway.services.config.advertised_host


@pytest.mark.parametrize(("host_set", "named"), [("", socket.gethostname()), ("127.0.0.1", None)])
async def test_listener_on_every_address_advertises_this_machine_and_warns(
    caplog: pytest.LogCaptureFixture, host_set: str, named: str | None
) -> None:
    """0.0.0.0 is nothing that a client can connect to; an address that was set is left alone."""
    caplog.set_level(logging.WARNING, "kledger.gateway.net.server")
    async with running_gateway() as gateway:
        config = gateway.services.config
        config.advertised_host, config.advertised_port = host_set, 0
        server = GatewayServer(gateway.services)
        _, port = await server.start("0.0.0.0", 0)
        await server.stop()
        assert (named or host_set) == config.advertised_host
    warnings = [record.getMessage() for record in caplog.records]
    assert (named is not None) == any(
        f"as {named}:{port}; advertised.listeners" in w for w in warnings
    )


async def test_workers_share_an_address_and_advertise_their_own() -> None:
    """Clients come in by one port and then go to the broker that metadata names."""
    host = "127.0.0.1"
    with closing(ReservedPorts()) as ports:
        bootstrap = ports.reserve("kafka", (host, 0))
        async with running_gateway() as one, running_gateway() as other:
            own: list[int] = []
            servers: list[GatewayServer] = []
            for gateway in (one, other):
                gateway.services.config.advertised_port = 0
                servers.append(GatewayServer(gateway.services, bootstrap={"kafka": bootstrap}))
                own.append((await servers[-1].start(host, 0))[1])
            met: set[int] = set()
            while met != set(own):  # the kernel chooses for each connection
                async with WireClient(*bootstrap) as client:
                    metadata = await client.ask(MetadataRequest(topics=[]), 9)
                    met.add(metadata.brokers[0].port)
            await servers[0].stop()
            for _ in range(20):
                async with WireClient(*bootstrap) as client:
                    metadata = await client.ask(MetadataRequest(topics=[]), 9)
                    assert own[1] == metadata.brokers[0].port
            await servers[1].stop()


async def test_stop_refuses_new_connections_and_closes_idle_ones() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await client.ask(MetadataRequest(topics=[]), 9)
        await gateway.server.stop()
        assert await client.is_closed_by_server()
        with pytest.raises(ConnectionError):
            await gateway.client().__aenter__()


async def test_stop_answers_what_was_started_first() -> None:
    async with running_gateway() as gateway, gateway.client() as writer, gateway.client() as reader:
        await gateway.create_topic()
        reader.send(fetch({0: 0}, max_wait_ms=60_000, min_bytes=1 << 20), 12)
        await gateway.parked()
        hold = gateway.engine.hold_next("commit")
        writer.send(produce({0: batch(b"x")}), 9)
        await hold.reached()
        stopping = asyncio.ensure_future(gateway.server.stop())
        assert 0 == (await reader.receive()).responses[0].partitions[0].error_code
        assert not stopping.done()
        hold.release()
        produced = await writer.receive()
        assert 0 == produced.responses[0].partition_responses[0].error_code
        await stopping
        assert await writer.is_closed_by_server()
        await gateway.server.stop()


async def test_stop_aborts_what_is_unfinished_after_the_grace_period() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        hold = gateway.engine.hold_next("commit")
        client.send(produce({0: batch(b"x")}), 9)
        await hold.reached()
        stopping = asyncio.ensure_future(gateway.server.stop(grace_ms=1_000))
        await until(lambda: len(gateway.services.timers) > 0)
        await asyncio.sleep(0)
        assert not stopping.done()
        gateway.clock.advance(1_000)
        await stopping
        hold.release()
        assert await client.is_closed_by_server()
