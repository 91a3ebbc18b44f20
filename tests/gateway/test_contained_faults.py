"""A fault of the server closes the unit it happened in; all other clients are served."""

from collections.abc import Awaitable, Callable

import pytest

from kledger.gateway.fetch.session import SessionPartition
from kledger.gateway.fetch.slot import FetchedPartition, FetchSlot
from kledger.gateway.net.connection import Connection
from kledger.gateway.net.connection_state import ResponseSlot
from kledger.gateway.produce.request import ProduceSlot
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from tests.contained import Contained
from tests.gateway.running import RunningGateway, batch, fetch, produce, running_gateway, until
from tests.gateway.session_client import Session, write
from tests.gateway.wire_client import WireClient

Arrange = Callable[[RunningGateway, WireClient, pytest.MonkeyPatch], Awaitable[None]]
"""Lets a fault happen in what the server does for that client."""


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Let the next call of a method raise, on any instance."""
    method = getattr(owner, name)

    def fails(self: object, *arguments: object, **named: object) -> object:
        monkeypatch.setattr(owner, name, method)
        raise RuntimeError("injected")

    monkeypatch.setattr(owner, name, fails)


def connection_of(gateway: RunningGateway, client: WireClient) -> Connection:
    port = client.writer.get_extra_info("sockname")[1]
    return next(each for each in gateway.server.connections if each.peer.port == port)


def counted(gateway: RunningGateway) -> dict[str, int]:
    return gateway.services.supervisor.containment.metrics.snapshot()


async def is_served(client: WireClient) -> bool:
    """Whether requests of each kind go through."""
    await write(client, b"later")
    await client.ask(MetadataRequest(topics=[]), 9)
    response = await client.ask(fetch({0: 0}), 12)
    return bool(response.responses[0].partitions[0].records)


class Broken(ResponseSlot):
    """A slot that cannot finish, and cannot be abandoned either."""

    def finish(self) -> None:
        raise RuntimeError("injected")

    def abandon(self) -> None:
        raise RuntimeError("injected into abandon")


async def finishing(
    gateway: RunningGateway, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection_of(gateway, client).finish_at_tick_end(Broken())


async def writing(
    gateway: RunningGateway, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(monkeypatch, Connection, "flush")
    client.send(MetadataRequest(topics=[]), 9)


async def checking_limits(
    gateway: RunningGateway, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connection_of(gateway, client)
    connection._listener.resume_within_budget(connection)
    fail_once(monkeypatch, Connection, "check_limits")
    connection._listener._schedule_tick_end()


async def starting(
    gateway: RunningGateway, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(monkeypatch, Connection, "_begin")
    client.send(MetadataRequest(topics=[]), 9)


async def answering_a_produce(
    gateway: RunningGateway, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(monkeypatch, Connection, "slot_ready")
    client.send(produce({0: batch(b"lost answer")}), 9)


async def answering_a_produce_of_two(
    gateway: RunningGateway, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(monkeypatch, ProduceSlot, "complete")
    client.send(produce({0: batch(b"a"), 1: batch(b"b")}), 9)


async def ending_a_wait(
    gateway: RunningGateway, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.send(fetch({1: 0}, max_wait_ms=60_000), 12)
    await gateway.parked()
    fail_once(monkeypatch, FetchSlot, "_respond")
    gateway.clock.advance(60_000)


async def hearing_of_records(
    gateway: RunningGateway, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.send(fetch({1: 0}, max_wait_ms=60_000), 12)
    await gateway.parked()
    fail_once(monkeypatch, FetchedPartition, "count")
    async with gateway.client() as writer:
        await write(writer, b"reported", 1)


async def hearing_of_records_in_a_session(
    gateway: RunningGateway, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(client)
    await session.fetch({1: 0})
    await session.fetch_later(gateway)
    fail_once(monkeypatch, SessionPartition, "stop_listening")
    async with gateway.client() as writer:
        await write(writer, b"reported", 1)


async def reading_from_storage(
    gateway: RunningGateway, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(monkeypatch, FetchedPartition, "result")
    client.send(fetch({0: 0}), 12)


ARRANGEMENTS: list[Arrange] = [
    finishing,
    writing,
    checking_limits,
    starting,
    answering_a_produce,
    answering_a_produce_of_two,
    ending_a_wait,
    hearing_of_records,
    hearing_of_records_in_a_session,
    reading_from_storage,
]


@pytest.mark.parametrize("arrange", ARRANGEMENTS, ids=lambda arrange: arrange.__name__)
async def test_fault_closes_its_own_connection_and_no_other(
    arrange: Arrange, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """Some ended the server, others left a flag behind: no connection was written to again."""
    async with running_gateway(cache_bytes=0) as gateway, gateway.client() as other:
        await gateway.create_topic(partitions=2)
        await write(other, b"first")
        async with gateway.client() as client:
            await client.ask(MetadataRequest(topics=[]), 9)
            await arrange(gateway, client, monkeypatch)
            assert await client.is_closed_by_server()
        await until(lambda: gateway.server.connection_count == 1)
        assert await is_served(other)
        async with gateway.client() as again:
            assert await is_served(again)
        assert 1 <= sum(counted(gateway).values())
        assert "connection" in contained.messages[0] or "session" in contained.messages[0]
        assert 0 == gateway.services.metrics.snapshot()["request_bytes_in_flight"]


async def test_all_connections_resume_after_a_drain_though_one_fails(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """Those behind the one that failed waited for ever."""
    async with (
        running_gateway(queue_count_max=1) as gateway,
        gateway.client() as first,
        gateway.client() as second,
    ):
        await gateway.create_topic()
        hold = gateway.engine.hold_next("commit")
        for client in (first, second):
            for _ in range(8):
                client.send(produce({0: batch(b"x")}), 9)
            await client.writer.drain()
        await hold.reached()
        held = connection_of(gateway, first)._listener._awaiting_drain
        await until(lambda: len(held) == 2)
        fail_once(monkeypatch, Connection, "store_drained")
        hold.release()
        await until(lambda: gateway.server.connection_count == 1)
        (left,) = gateway.server.connections
        client = first if left is connection_of_port(gateway, first) else second
        for _ in range(8):
            await client.receive()
        assert await is_served(client)
    assert ["a fault here closes connection 127.0.0.1"] == contained.messages


def connection_of_port(gateway: RunningGateway, client: WireClient) -> Connection | None:
    port = client.writer.get_extra_info("sockname")[1]
    return next((each for each in gateway.server.connections if each.peer.port == port), None)


async def test_sweep_of_idle_connections_continues_after_one_fails(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with running_gateway() as gateway, gateway.client() as first:
        await first.ask(MetadataRequest(topics=[]), 9)
        fail_once(monkeypatch, Connection, "close_if_idle")
        idle_ms = gateway.services.config.connections_max_idle_ms
        gateway.clock.advance(idle_ms // 16)
        assert await first.is_closed_by_server()
        async with gateway.client() as second:
            await second.ask(MetadataRequest(topics=[]), 9)

            def is_closed_for_idleness() -> bool:
                gateway.clock.advance(idle_ms // 16)
                return gateway.server.connection_count == 0

            await until(is_closed_for_idleness)
    assert 1 == len(contained.messages)


async def test_client_that_goes_during_a_cold_fetch_of_its_session_is_no_fault() -> None:
    """It ended in a traceback: the partitions had been forgotten before they were read."""
    async with running_gateway(cache_bytes=0) as gateway:
        await gateway.create_topic(partitions=2)
        hold = gateway.engine.hold_next("read")
        async with gateway.client() as client:
            for partition in range(2):
                await write(client, b"cold", partition)
            client.send(Session(client).request({0: 0, 1: 0}), 12)
            await hold.reached()
            client.reset()
        await until(lambda: gateway.server.connection_count == 0)
        hold.release()
        await until(lambda: gateway.services.supervisor.task_count <= 1)
        async with gateway.client() as again:
            session = Session(again)
            answer = await session.fetch({0: 0, 1: 0})
            assert {0, 1} == set(answer)
