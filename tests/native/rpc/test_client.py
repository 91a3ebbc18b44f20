"""Every call of the broker over a connection: same arguments, same results, same errors."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kledger.ledger import Position
from kledger.native.broker import EARLIEST, LATEST, Broker, RecordPosition
from kledger.native.errors import AlreadyClosed, InvalidArgument, KledgerError, Unavailable
from kledger.native.rpc.client import RpcClient
from kledger.native.rpc.protocol import CODES
from tests.native.recording_broker import Endings, RecordingBroker
from tests.native.rpc.connected_pair import pair

PLACE = RecordPosition(Position(3, 9), 4)
Call = Callable[[Broker], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "lookup": lambda b: b.lookup("persistent://public/default/orders", create=True),
    "last_record": lambda b: b.last_record("orders", 2),
    "committed_ends": lambda b: b.committed_ends("orders"),
    "record_at": lambda b: b.record_at("orders", 2, 1 << 40),
    "offset_of": lambda b: b.offset_of("orders", 2, PLACE),
    "create_partitions": lambda b: b.create_partitions("orders", 5),
    "create_topic": lambda b: b.create_topic("ü", 3, {"retention.ms": "-1"}),
    "delete_topic": lambda b: b.delete_topic("orders"),
    "topics": lambda b: b.topics(),
    "topic_stats": lambda b: b.topic_stats("orders"),
    "terminate": lambda b: b.terminate("orders"),
    "offload_all": lambda b: b.start_offload("orders", None, None),
    "offload_first": lambda b: b.start_offload("orders", Position(3, 0), 0),
    "offload_status": lambda b: b.offload_status("orders"),
    "namespaces": lambda b: b.namespaces(),
    "create_namespace": lambda b: b.create_namespace("t/n"),
    "delete_namespace": lambda b: b.delete_namespace("t/n"),
    "policies": lambda b: b.policies("t/n"),
    "set_policies": lambda b: b.set_policies("t/n", {"a": "1", "ü": ""}, ["b", "c"]),
    "subscriptions": lambda b: b.subscriptions("orders"),
    "create_at_place": lambda b: b.create_subscription("orders", "s", PLACE),
    "create_at_time": lambda b: b.create_subscription("orders", "s", 0),
    "create_at_end": lambda b: b.create_subscription("orders", "s", LATEST),
    "delete_subscription": lambda b: b.delete_subscription("orders", "s", force=True),
    "subscription_stats": lambda b: b.subscription_stats("orders", "s"),
    "reset_all": lambda b: b.reset_subscription(
        "orders", "s", EARLIEST, partition=None, inclusive=True
    ),
    "reset_first": lambda b: b.reset_subscription("orders", "s", 12, partition=0, inclusive=False),
    "skip_messages": lambda b: b.skip_messages("orders", "s", 1 << 40),
    "clear_backlog": lambda b: b.clear_backlog("orders", "s"),
    "peek": lambda b: b.peek("orders", "s", 5),
    "metrics_clients": lambda b: b.metrics_clients(),
    "client_metrics": lambda b: b.client_metrics("8SNFZ4mrze-BI0VniavN7w"),
    "client_metrics_missing": lambda b: b.client_metrics("missing"),
}


async def test_every_call_is_the_same_as_without_a_connection() -> None:
    async with pair() as both:
        for name, call in CALLS.items():
            here = RecordingBroker()
            expected = await call(here)
            both.broker.calls.clear()
            assert expected == await call(both.client), name
            assert here.calls == both.broker.calls, name


async def test_every_error_arrives_as_itself() -> None:
    async with pair() as both:
        for kind, _ in CODES.values():
            both.broker.fail_next = kind("orders: erwartet 3, got 4: ü")
            with pytest.raises(KledgerError) as caught:
                await both.client.lookup("orders", create=False)
            assert kind is type(caught.value)
            assert "orders: erwartet 3, got 4: ü" == str(caught.value)


async def test_mistake_of_the_server_is_an_error_of_the_call_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pair() as both:
        both.broker.fail_next = RuntimeError("a mistake")
        with pytest.raises(KledgerError, match="a mistake"):
            await both.client.topics()
        assert ["a", "ü"] == await both.client.topics()
    assert "a native request failed" in caplog.text


async def test_word_that_is_no_target_is_refused_before_it_is_sent() -> None:
    async with pair() as both:
        with pytest.raises(InvalidArgument, match="'soon'"):
            await both.client.create_subscription("orders", "s", "soon")
        assert [] == both.broker.calls


async def test_closing_fails_pending_calls_without_cancelling_their_tasks() -> None:
    async with pair() as both:
        both.broker.hold_open = asyncio.Event()
        asking = asyncio.ensure_future(both.client.topics())
        opening = asyncio.ensure_future(
            both.client.open_producer("t", 0, name="p", on_ended=Endings())
        )
        await both.broker.happened("topics")
        await both.broker.happened("open_producer", "t", 0, "p")
        await both.client.close()
        for each in (asking, opening):
            with pytest.raises(AlreadyClosed):
                await each


async def test_cancelled_call_is_cancelled() -> None:
    async with pair() as both:
        both.broker.hold_open = asyncio.Event()
        asking = asyncio.ensure_future(both.client.topics())
        await both.broker.happened("topics")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_missing_server_is_unavailable() -> None:
    client = RpcClient("127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"no connection within 300 ms: 127\.0\.0\.1:1"):
        await client.connect(timeout_ms=300, retry_ms=None)
    await client.close()
    await client.close()
