"""Entering and leaving a client; its methods are tested by the contract."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from kledger.native.broker import Broker
from kledger.native.client.client import Client
from kledger.native.errors import AlreadyClosed, SubscriptionFenced, Timeout, Unavailable
from kledger.runtime.manual_clock import ManualClock
from tests.native.client_builders import ticks
from tests.native.recording_broker import RecordingBroker


class Server:
    """Notes when it is entered and left."""

    def __init__(self, *, failure: Exception | None = None) -> None:
        self.broker = RecordingBroker()
        self._failure = failure

    async def __aenter__(self) -> Broker:
        if self._failure is not None:
            raise self._failure
        self.broker.record("enter")
        return self.broker

    async def __aexit__(self, *_: object) -> None:
        self.broker.record("leave")


def opened(server: Server) -> Client:
    return Client(server, clock=ManualClock())


async def test_producers_and_consumers_are_closed_before_the_server() -> None:
    server = Server()
    async with opened(server) as client:
        await client.create_producer("orders", producer_name="p")
        consumer = await client.subscribe("orders", "s", consumer_name="c")
        reader = await client.create_reader("orders", "earliest")
        waiting = [asyncio.ensure_future(consumer.receive()),
                   asyncio.ensure_future(reader.read_next())]  # fmt: skip
        await ticks()
    assert all(each.is_closed for each in server.broker.links)
    assert ("leave",) == server.broker.calls[-1]
    for each in waiting:
        with pytest.raises(AlreadyClosed):
            await each


async def test_handles_closed_before_their_client_may_be_closed_again() -> None:
    server = Server()
    async with opened(server) as client:
        async with await client.create_producer("orders"):
            pass
        producer = await client.create_producer("orders")
        consumer = await client.subscribe("orders", "s")
        async with consumer:
            pass
    await producer.close()
    await consumer.close()
    with pytest.raises(AlreadyClosed):
        await producer.send(b"late")


async def test_client_works_while_it_is_open_only() -> None:
    client = opened(Server())
    for _ in range(2):
        for call in (
            client.create_producer("orders"), client.subscribe("orders", "s"),
            client.create_reader("orders", "earliest"), client.topics(),
        ):  # fmt: skip
            with pytest.raises(AlreadyClosed, match="async with"):
                await call
        async with client:
            await client.topics()


async def test_error_of_entering_the_server_is_raised() -> None:
    with pytest.raises(Unavailable, match="away"):
        await opened(Server(failure=Unavailable("away"))).__aenter__()


async def test_crashed_task_of_the_client_fails_its_users() -> None:
    """A crash of a background task is raised to waiting callers and on leaving the client."""
    server = Server()
    client = await opened(server).__aenter__()
    consumer = await client.subscribe("orders", "s")
    receiving = asyncio.ensure_future(consumer.receive())
    await ticks()

    async def broken(*_: object, **__: object) -> Any:
        return 1 // 0

    server.broker.open_consumer = broken  # type: ignore[method-assign]
    server.broker.links[0].on_ended(None)
    with pytest.raises(Unavailable, match="ZeroDivisionError"):
        await receiving
    with pytest.raises(ZeroDivisionError):
        await client.__aexit__(None, None, None)
    assert ("leave",) == server.broker.calls[-1]


async def test_error_of_the_program_is_not_hidden_by_ours() -> None:
    client = await opened(Server()).__aenter__()
    client._on_crash(ZeroDivisionError())
    await client.__aexit__(KeyError, KeyError(), None)


@pytest.mark.parametrize("kind", ["consumer", "reader"])
async def test_pending_subscribe_ends_with_its_client(kind: str) -> None:
    """The server's stop ended its link later, and a task was spawned after the close."""
    server = Server()
    client = opened(server)
    async with client:
        server.broker.hold_open = asyncio.Event()
        making = asyncio.ensure_future(
            client.subscribe("orders", "s", consumer_name="c")
            if kind == "consumer"
            else client.create_reader("orders", "earliest")
        )
        await ticks()
        server.broker.hold_open.set()
        while not server.broker.links:  # noqa: ASYNC110 (ticks of the loop, no time)
            await asyncio.sleep(0)
    with pytest.raises(AlreadyClosed):
        await making
    assert all(each.is_closed for each in server.broker.links)
    assert ("leave",) == server.broker.calls[-1]
    for link in server.broker.links:
        link.on_ended(Unavailable("the server is stopping"))


async def test_operation_ends_in_time_while_others_reset_the_subscription() -> None:
    """A subscribe, or the reconnect after a seek, waited for ever while the server refused."""
    server, clock = Server(), ManualClock()
    client = Client(server, clock=clock, operation_timeout_ms=20_000)

    async def over(call: Coroutine[Any, Any, object]) -> str:
        running = asyncio.ensure_future(call)
        begun_ms = clock.monotonic_ms()
        while not running.done():
            await ticks()
            clock.advance(100)
        assert clock.monotonic_ms() - begun_ms <= 20_100
        with pytest.raises(Timeout) as caught:
            await running
        return str(caught.value)

    async with client:
        consumer = await client.subscribe("orders", "s")
        reader = await client.create_reader("orders", "earliest")
        server.broker.fail_open = SubscriptionFenced("it is being reset")
        reason = "orders: not done within 20000 ms: it is being reset"
        assert f"subscribe to {reason}" == await over(client.subscribe("orders", "t"))
        assert f"read {reason}" == await over(client.create_reader("orders", "earliest"))
        server.broker.links[0].on_ended(None)
        assert f"seek {reason}" == await over(consumer.seek("earliest"))
        assert f"seek {reason}" == await over(reader.seek("earliest"))
        server.broker.fail_open = None
        seeking = asyncio.ensure_future(consumer.seek("earliest"))
        while not seeking.done():
            await ticks()
            clock.advance(100)
        await seeking
