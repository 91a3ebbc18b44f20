"""Connections that do not read are limited together, beside those that do. Over real sockets."""

import asyncio
from contextlib import AsyncExitStack

from kledger.gateway.config import MIB, GatewayConfig
from tests.gateway.running import batch, fetch, produce, running_gateway, until

PRODUCE_V, FETCH_V = 9, 12
LIMIT = 16 * MIB
IDLE_MS = 16_000


async def test_connections_that_do_not_read_share_one_limit_and_others_are_served() -> None:
    """Each of them was limited alone: 250 of them took gigabytes."""
    config = GatewayConfig(queued_max_response_bytes=LIMIT)
    async with running_gateway(config) as gateway, AsyncExitStack() as stack:
        await gateway.create_topic()
        good = await stack.enter_async_context(gateway.client())
        for _ in range(40):
            await good.ask(produce({0: batch(b"x" * 1_000_000)}), PRODUCE_V)
        for _ in range(40):
            slow = await stack.enter_async_context(gateway.client())
            for _ in range(10):
                slow.send(fetch({0: 0}, partition_max_bytes=40 * MIB), FETCH_V)
        connections = gateway.server.connections
        await until(lambda: sum(each.state.request_count for each in connections) > 100)
        for offset in range(40):
            asked = asyncio.ensure_future(good.ask(fetch({0: offset}), FETCH_V))
            while not asked.done():
                await asyncio.sleep(0)
                gateway.clock.advance(10)
            [partition] = (await asked).responses[0].partitions
            assert 1_000_000 < len(partition.records or b"")
            held = [each.unsent_bytes for each in gateway.server.connections]
            assert sum(held) < LIMIT + len(held) * MIB, "one batch each, at most"


async def test_what_the_peer_has_taken_is_known() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await client.ask(produce({0: batch(b"x" * 1_000_000)}), PRODUCE_V)
        await client.ask(fetch({0: 0}), FETCH_V)
        [connection] = gateway.server.connections
        await until(lambda: connection.unsent_bytes == 0)
        sent_bytes = gateway.services.metrics.snapshot()["sent_bytes"]
        assert 1_000_000 < connection.taken_bytes == sent_bytes


async def test_a_connection_that_takes_nothing_is_closed_like_one_that_says_nothing() -> None:
    config = GatewayConfig(connections_max_idle_ms=IDLE_MS)
    async with running_gateway(config) as gateway, gateway.client() as client:
        await gateway.create_topic()
        for _ in range(8):
            await client.ask(produce({0: batch(b"x" * 1_000_000)}), PRODUCE_V)
        for _ in range(20):
            client.send(fetch({0: 0}, partition_max_bytes=8 * MIB), FETCH_V)
        [connection] = gateway.server.connections
        await until(lambda: connection.unsent_bytes > MIB)
        for _ in range(3 * IDLE_MS // 1_000):
            await asyncio.sleep(0)
            gateway.clock.advance(1_000)
        await until(lambda: gateway.server.connection_count == 0)
