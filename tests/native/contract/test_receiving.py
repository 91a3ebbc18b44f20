"""The guarantees of receiving."""

import asyncio
from typing import Any

import pytest

import kledger
from tests.native.contract.words import (
    SOON_MS,
    divided,
    is_quiet,
    receive,
    receive_values,
    send,
    values,
)


async def test_new_subscription_begins_at_its_initial_position(
    client: kledger.Client, topic: str
) -> None:
    await send(client, topic, [b"old"])
    latest = await client.subscribe(topic, "latest")
    earliest = await client.subscribe(topic, "earliest", initial_position="earliest")
    await send(client, topic, [b"new"])
    assert [b"new"] == await receive_values(latest, 1)
    assert {b"old", b"new"} == set(await receive_values(earliest, 2))


async def test_subscription_continues_at_its_position(client: kledger.Client, topic: str) -> None:
    await send(client, topic, values(20))
    async with await client.subscribe(topic, "s", initial_position="earliest") as consumer:
        done = await receive(consumer, 12)
        for message in done:
            await consumer.acknowledge(message)
    rest = set(values(20)) - {each.value for each in done}
    async with await client.subscribe(topic, "s", initial_position="earliest") as consumer:
        assert rest == set(await receive_values(consumer, 8))
        assert await is_quiet(consumer)


async def test_cursor_that_is_not_durable_is_deleted(client: kledger.Client, topic: str) -> None:
    options: dict[str, Any] = {"durable": False, "initial_position": "earliest"}
    await send(client, topic, values(5))
    for _ in range(2):
        async with await client.subscribe(topic, "s", **options) as consumer:
            assert set(values(5)) == set(await receive_values(consumer, 5))
            assert [] == await client.subscriptions(topic)


async def test_receive_times_out(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    with pytest.raises(TimeoutError):
        await consumer.receive(timeout_ms=20)
    with pytest.raises(kledger.Timeout):
        await consumer.receive(timeout_ms=0)
    for wrong in (-1, 1.5, "1"):
        with pytest.raises(kledger.InvalidArgument):
            await consumer.receive(timeout_ms=wrong)  # type: ignore[arg-type]


async def test_receive_waits_for_a_later_message(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    waiting = [asyncio.ensure_future(consumer.receive()) for _ in range(3)]
    await asyncio.sleep(0)
    await send(client, topic, values(3))
    received = await asyncio.wait_for(asyncio.gather(*waiting), SOON_MS / 1000)
    assert set(values(3)) == {each.value for each in received}


async def test_cancelled_receive_loses_nothing(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s", initial_position="earliest")
    await send(client, topic, values(50))
    received: list[bytes | None] = []
    while len(received) < 50:
        task = asyncio.ensure_future(consumer.receive())
        for _ in range(len(received) % 3):
            await asyncio.sleep(0)
        task.cancel()
        try:
            received.append((await task).value)
        except asyncio.CancelledError:
            received.append((await consumer.receive(timeout_ms=SOON_MS)).value)
    assert set(values(50)) == set(received)
    assert await is_quiet(consumer)


async def test_batch_receive_returns_at_most_its_maximum(
    client: kledger.Client, topic: str
) -> None:
    consumer = await client.subscribe(topic, "s")
    await send(client, topic, values(10))
    first = await consumer.batch_receive(7, timeout_ms=SOON_MS)
    assert 7 == len(first)
    (rest,) = await divided([consumer], 3)
    assert set(values(10)) == {each.value for each in [*first, *rest]}
    assert [] == await consumer.batch_receive(1, timeout_ms=20)


async def test_batch_receive_without_a_limit_waits_for_the_first(
    client: kledger.Client, topic: str
) -> None:
    consumer = await client.subscribe(topic, "s")
    waiting = asyncio.ensure_future(consumer.batch_receive(100))
    await asyncio.sleep(0)
    await send(client, topic, values(5))
    found = await asyncio.wait_for(waiting, SOON_MS / 1000)
    assert set(values(5)) == {each.value for each in found}
    with pytest.raises(kledger.InvalidArgument):
        await consumer.batch_receive(0)


async def test_batch_larger_than_the_queue_is_received(client: kledger.Client) -> None:
    consumer = await client.subscribe("orders", "s", receiver_queue_size=4)
    producer = await client.create_producer("orders", batching=False)
    await asyncio.gather(*(producer.send(each) for each in values(20)))
    found: list[bytes | None] = []
    while len(found) < 20:
        found += [each.value for each in await consumer.batch_receive(10, timeout_ms=SOON_MS)]
    assert values(20) == found


async def test_iteration_continues_until_the_consumer_is_closed(
    client: kledger.Client, topic: str
) -> None:
    consumer = await client.subscribe(topic, "s")
    await send(client, topic, values(5))
    found = []
    async for message in consumer:
        found.append(message.value)
        if len(found) == 5:
            await consumer.close()
    assert set(values(5)) == set(found)


@pytest.mark.parametrize("size", [1, 2, 7])
async def test_small_queue_receives_everything(
    client: kledger.Client, topic: str, size: int
) -> None:
    consumer = await client.subscribe(topic, "s", receiver_queue_size=size)
    await send(client, topic, values(40))
    assert set(values(40)) == set(await receive_values(consumer, 40))


async def test_closed_consumer_raises_also_to_waiters(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    (id_,) = await send(client, topic, [b"v"])
    (message,) = await receive(consumer, 1)
    waiting = asyncio.ensure_future(consumer.receive())
    await asyncio.sleep(0)
    await consumer.close()
    await consumer.close()
    with pytest.raises(kledger.AlreadyClosed):
        await waiting
    for call in (
        consumer.receive(), consumer.batch_receive(1), consumer.acknowledge(message),
        consumer.acknowledge_cumulative(message), consumer.negative_acknowledge(id_),
        consumer.redeliver_unacknowledged(), consumer.seek("earliest"), consumer.unsubscribe(),
        consumer.get_last_message_id(),
    ):  # fmt: skip
        with pytest.raises(kledger.AlreadyClosed):
            await call


async def test_last_message_id_is_that_of_the_newest(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    assert -1 == (await consumer.get_last_message_id()).entry_id
    sent = await send(client, topic, values(30))
    assert max(sent) == await consumer.get_last_message_id()
    for partition in {each.partition for each in sent}:
        newest = max(each for each in sent if each.partition == partition)
        assert newest == await consumer.get_last_message_id(partition=partition)


async def test_deleted_topic_ends_its_consumers_and_producers(
    client: kledger.Client, topic: str
) -> None:
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic)
    waiting = asyncio.ensure_future(consumer.receive(timeout_ms=SOON_MS))
    await asyncio.sleep(0)
    await client.delete_topic(topic)
    with pytest.raises(kledger.KledgerError) as caught:
        await waiting
    assert not isinstance(caught.value, kledger.Timeout)
    with pytest.raises(kledger.KledgerError):
        await producer.send(b"v")


@pytest.mark.parametrize(
    "given",
    [
        {"topic": ""},
        {"topic": None},
        {"subscription": ""},
        {"consumer_type": "sharded"},
        {"initial_position": "middle"},
        {"consumer_name": ""},
        {"priority_level": -1},
        {"receiver_queue_size": 0},
        {"max_unacked": -1},
        {"max_unacked_subscription": -1},
        {"key_ranges": [(0, 1)]},
        {"consumer_type": "key_shared", "key_ranges": []},
        {"consumer_type": "key_shared", "key_ranges": [(5, 4)]},
        {"consumer_type": "key_shared", "key_ranges": [(0, 65_536)]},
        {"consumer_type": "key_shared", "key_ranges": [(0, 9), (9, 12)]},
        {"consumer_type": "key_shared", "key_ranges": "all"},
        {"failover_delay_ms": -1},
        {"negative_ack_redelivery_delay_ms": -1},
        {"ack_timeout_ms": 0},
        {"dead_letter": kledger.DeadLetterPolicy(max_redeliver_count=-1)},
    ],
)
async def test_bad_consumers_are_refused(client: kledger.Client, given: dict[str, Any]) -> None:
    with pytest.raises(kledger.InvalidArgument):
        await client.subscribe(**{"topic": "orders", "subscription": "s"} | given)
