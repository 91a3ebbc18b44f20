"""Which new connections wait and which are closed, as in Apache Kafka 4.3; on real sockets."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
import uvloop

from kledger.gateway.config import GatewayConfig
from kledger.gateway.net import connection_quotas
from kledger.gateway.quotas.quota_state import IP
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from tests.gateway.running import RunningGateway, running_gateway, until
from tests.gateway.wire_client import WireClient

HERE = "127.0.0.1"


async def ask(client: WireClient) -> None:
    assert isinstance(await client.ask(MetadataRequest(topics=[]), 9), MetadataResponse)


async def unanswered(client: WireClient) -> "asyncio.Future[object]":
    """Ask, see that nothing comes for many ticks of the loop, return what will be the answer."""
    client.send(MetadataRequest(topics=[]), 9)
    answer = asyncio.ensure_future(client.receive())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not answer.done()
    return answer


async def connections(gateway: RunningGateway, stack: AsyncExitStack, count: int) -> None:
    """Open connections and have each served once."""
    for _ in range(count):
        await ask(await stack.enter_async_context(gateway.client()))


async def places_for_two_of_four() -> None:
    config = GatewayConfig(max_connections=2)
    async with running_gateway(config) as gateway, AsyncExitStack() as stack:
        first, second, third, fourth = (gateway.client() for _ in range(4))
        for client in (first, second, third, fourth):
            await stack.enter_async_context(client)
        await ask(first)
        await ask(second)
        waiting = await unanswered(third)
        waiting_longer = await unanswered(fourth)
        assert 2 == gateway.server.connection_count
        first.writer.close()
        assert await waiting
        assert not waiting_longer.done()
        await ask(second)
        second.writer.close()
        assert await waiting_longer


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_above_max_connections_new_ones_wait_in_their_order(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The loops differ in when they begin to read a connection."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(places_for_two_of_four())


async def test_a_waiting_connection_that_closes_is_not_admitted() -> None:
    async with running_gateway(GatewayConfig(max_connections=1)) as gateway:
        async with gateway.client() as first:
            await ask(first)
            async with gateway.client() as second:
                second.send(MetadataRequest(topics=[]), 9)
            third = await gateway.client().__aenter__()
            waiting = await unanswered(third)
        assert await waiting
        third.writer.close()
        await until(lambda: gateway.server.connection_count == 0)


async def test_a_higher_limit_admits_waiting_connections() -> None:
    config = GatewayConfig(max_connections=1)
    async with running_gateway(config) as gateway, AsyncExitStack() as stack:
        await connections(gateway, stack, 1)
        second = await stack.enter_async_context(gateway.client())
        waiting = await unanswered(second)
        settings = gateway.services.broker_settings
        await settings.alter("1", {"max.connections": "2"}, replace=False, validate_only=False)
        gateway.clock.advance(config.connections_max_idle_ms // 16)
        assert await waiting


async def test_waiting_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_quotas, "WAITING_MAX", 1)
    config = GatewayConfig(max_connections=1)
    async with running_gateway(config) as gateway, AsyncExitStack() as stack:
        await connections(gateway, stack, 1)
        second, third = gateway.client(), gateway.client()
        await stack.enter_async_context(second)
        waiting = await unanswered(second)
        await stack.enter_async_context(third)
        assert await third.is_closed_by_server()
        waiting.cancel()


async def test_a_stop_closes_waiting_connections() -> None:
    config = GatewayConfig(max_connections=1)
    async with running_gateway(config) as gateway, AsyncExitStack() as stack:
        await connections(gateway, stack, 1)
        second = await stack.enter_async_context(gateway.client())
        (await unanswered(second)).cancel()
        await gateway.server.stop()
        assert await second.is_closed_by_server()
        assert 1 == gateway.services.metrics.snapshot()["connections_accepted"]


async def test_an_address_over_its_limit_is_closed_at_once() -> None:
    config = GatewayConfig(max_connections_per_ip=2)
    async with running_gateway(config) as gateway, AsyncExitStack() as stack:
        await connections(gateway, stack, 2)
        async with gateway.client() as third:
            assert await third.is_closed_by_server()
        assert 2 == gateway.server.connection_count


@pytest.mark.parametrize(("overrides", "let_in"), [(f"{HERE}:3", 3), ("10.0.0.1:9,::1:8", 1)])
async def test_an_address_may_have_a_limit_of_its_own(overrides: str, let_in: int) -> None:
    config = GatewayConfig(max_connections_per_ip=1, max_connections_per_ip_overrides=overrides)
    async with running_gateway(config) as gateway, AsyncExitStack() as stack:
        await connections(gateway, stack, let_in)
        async with gateway.client() as another:
            assert await another.is_closed_by_server()


async def test_limits_of_addresses_can_be_altered() -> None:
    async with running_gateway(GatewayConfig(max_connections_per_ip=0)) as gateway:
        name, settings = "max.connections.per.ip.overrides", gateway.services.broker_settings
        for text, is_let_in in ((None, False), (f"{HERE}:1", True), (None, False)):
            await settings.alter("1", {name: text}, replace=False, validate_only=False)
            async with gateway.client() as client:
                if is_let_in:
                    await ask(client)
                else:
                    assert await client.is_closed_by_server()
            await until(lambda: gateway.server.connection_count == 0)


async def early(gateway: RunningGateway, stack: AsyncExitStack) -> WireClient:
    """Use up what an address has saved; return the connection that came too early."""
    await gateway.services.quotas.put(((IP, HERE),), {"connection_creation_rate": 2.0})
    await connections(gateway, stack, 20)
    client = await stack.enter_async_context(gateway.client())
    listener = gateway.server._listener
    assert listener is not None
    await until(lambda: bool(listener.connection_quotas._delayed_closes))
    return client


async def test_a_connection_above_its_addresss_rate_is_not_served_and_closed_later() -> None:
    async with running_gateway() as gateway, AsyncExitStack() as stack:
        client = await early(gateway, stack)
        answer = await unanswered(client)
        gateway.clock.advance(499)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not answer.done()
        gateway.clock.advance(1)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await answer
        await connections(gateway, stack, 1)


async def test_connections_that_came_too_early_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_quotas, "DELAYED_CLOSES_MAX", 1)
    async with running_gateway() as gateway, AsyncExitStack() as stack:
        first = await early(gateway, stack)
        (await unanswered(first)).cancel()
        async with gateway.client() as second:
            assert await second.is_closed_by_server()
        await gateway.server.stop()
        assert await first.is_closed_by_server()


async def test_other_addresses_and_open_connections_go_on() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.services.quotas.put(((IP, "10.0.0.1"),), {"connection_creation_rate": 1.0})
        async with AsyncExitStack() as stack:
            await connections(gateway, stack, 30)
        await ask(client)
