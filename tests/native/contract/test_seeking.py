"""Seeking: the new position, and its effect on the consumers."""

import asyncio

import pytest

import kledger
from tests.native.contract.words import (
    SOON_MS,
    divided,
    is_quiet,
    receive,
    receive_values,
    send,
    turn_loop,
    values,
)

TYPES = ["exclusive", "failover", "shared", "key_shared"]


@pytest.mark.parametrize("consumer_type", TYPES)
async def test_seek_to_the_ends(client: kledger.Client, topic: str, consumer_type: str) -> None:
    consumer = await client.subscribe(topic, "s", consumer_type=consumer_type)
    await send(client, topic, values(10))
    for message in await receive(consumer, 10):
        await consumer.acknowledge(message)
    await consumer.seek("earliest")
    again = await receive(consumer, 5)
    assert {0} == {each.redelivery_count for each in again}
    await consumer.seek("latest")
    assert await is_quiet(consumer)
    await send(client, topic, [b"new"])
    assert [b"new"] == await receive_values(consumer, 1)


@pytest.mark.parametrize("consumer_type", TYPES)
async def test_seek_to_a_message(client: kledger.Client, topic: str, consumer_type: str) -> None:
    consumer = await client.subscribe(topic, "s", consumer_type=consumer_type)
    sent = await send(client, topic, values(10), key=b"k")
    await receive(consumer, 10)
    await consumer.seek(sent[4])
    again = await receive(consumer, 6)
    assert sent[4:] == [each.id for each in again]
    await consumer.seek(sent[4], inclusive=False)
    assert sent[5:] == [each.id for each in await receive(consumer, 5)]
    await consumer.seek(sent[9], inclusive=False)
    assert await is_quiet(consumer)
    assert 0 == (await client.subscription_stats(topic, "s")).backlog


async def test_seek_to_a_message_leaves_other_partitions_alone(client: kledger.Client) -> None:
    await client.create_topic("orders", partitions=3)
    consumer = await client.subscribe("orders", "s", consumer_type="shared")
    producer = await client.create_producer("orders")
    sent = [await producer.send(each) for each in values(9)]
    for message in await receive(consumer, 9):
        await consumer.acknowledge(message)
    await consumer.seek(sent[4])
    expected = [each for each in sent if each.partition == sent[4].partition and each >= sent[4]]
    assert expected == [each.id for each in await receive(consumer, len(expected))]
    assert await is_quiet(consumer)


async def test_seek_to_a_time(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic)
    times = [1_000, 2_000, 3_000, 4_000]
    await asyncio.gather(
        *(producer.send(b"%d" % time, key=b"k", event_timestamp=time) for time in times)
    )
    await receive(consumer, 4)
    await consumer.seek(2_500)
    assert [b"3000", b"4000"] == await receive_values(consumer, 2)
    await consumer.seek(2_000)
    assert [b"2000", b"3000", b"4000"] == await receive_values(consumer, 3)
    await consumer.seek(4_001)
    assert await is_quiet(consumer)


@pytest.mark.parametrize("consumer_type", TYPES)
async def test_receive_waits_on_across_a_seek(
    client: kledger.Client, topic: str, consumer_type: str
) -> None:
    consumer = await client.subscribe(topic, "s", consumer_type=consumer_type)
    await send(client, topic, [b"v"])
    await receive(consumer, 1)
    waiting = asyncio.ensure_future(consumer.receive())
    await asyncio.sleep(0)
    await consumer.seek("latest")
    assert not waiting.done()
    await consumer.seek("earliest")
    assert b"v" == (await asyncio.wait_for(waiting, SOON_MS / 1000)).value


async def test_no_delivery_from_before_a_seek_follows_it(
    client: kledger.Client, topic: str
) -> None:
    """The queue is full of later messages when the seek begins."""
    consumer = await client.subscribe(topic, "s")
    await send(client, topic, values(100), key=b"k")
    await receive(consumer, 50)
    await consumer.seek("earliest")
    assert values(100) == await receive_values(consumer, 100)


@pytest.mark.parametrize("consumer_type", TYPES)
async def test_no_delivery_from_before_a_reset_follows_it(
    client: kledger.Client, topic: str, consumer_type: str
) -> None:
    """However far deliveries have got when the same client requests the reset."""
    consumer = await client.subscribe(
        topic, "s", consumer_type=consumer_type, receiver_queue_size=6
    )
    await send(client, topic, values(20), key=b"k")
    for count in range(10):
        assert values(3) == await receive_values(consumer, 3)
        await turn_loop(3 * count)
        await client.reset_subscription(topic, "s", "earliest")
    assert values(20) == await receive_values(consumer, 20)


async def test_acknowledgement_that_meets_a_seek_is_settled_by_it(client: kledger.Client) -> None:
    """A pending acknowledgement raised a lost connection, depending on timing."""
    consumer = await client.subscribe("orders", "s", consumer_type="shared")
    (sent,) = await send(client, "orders", [b"v"])
    for ticks in range(0, 40, 2):
        message, *_ = await receive(consumer, 1)
        seeking = asyncio.ensure_future(consumer.seek(sent))
        acknowledging = []
        for tick in range(ticks):
            if tick % 4 == 3:
                acknowledging.append(asyncio.ensure_future(consumer.acknowledge(message)))
            await asyncio.sleep(0)
        await seeking
        assert {None} >= set(await asyncio.gather(*acknowledging)), f"after {ticks} ticks"
        await consumer.acknowledge(message)
    assert [sent] == [each.id for each in await receive(consumer, 1)]
    assert 1 == (await client.subscription_stats("orders", "s")).backlog


async def test_reset_by_another_client_settles_acknowledgements(client: kledger.Client) -> None:
    consumer = await client.subscribe("orders", "s", consumer_type="shared")
    await send(client, "orders", [b"v"])
    for ticks in range(20):
        message, *_ = await receive(consumer, 1)
        resetting = asyncio.ensure_future(client.reset_subscription("orders", "s", "earliest"))
        acknowledging = []
        while not resetting.done():
            acknowledging.append(asyncio.ensure_future(consumer.acknowledge(message)))
            for _ in range(1 + ticks % 5):
                await asyncio.sleep(0)
        assert {None} >= set(await asyncio.gather(*acknowledging)), f"after {ticks} ticks"
    assert [b"v"] == await receive_values(consumer, 1)


async def test_seek_of_one_moves_all_consumers(client: kledger.Client, topic: str) -> None:
    one, two = [await client.subscribe(topic, "s", consumer_type="shared") for _ in range(2)]
    await send(client, topic, values(10))
    assert 10 == sum(map(len, await divided([one, two], 10)))
    await one.seek("earliest")
    again = await divided([one, two], 10)
    assert sorted(values(10)) == sorted(m.value or b"" for each in again for m in each)


async def test_seek_of_a_subscription_that_is_not_durable(
    client: kledger.Client, topic: str
) -> None:
    for type_ in ("exclusive", "shared"):
        consumer = await client.subscribe(topic, type_, durable=False, consumer_type=type_)
        sent = await send(client, topic, values(5), key=b"k")
        await receive(consumer, 5)
        await consumer.seek(sent[2])
        assert sent[2:] == [each.id for each in await receive(consumer, 3)]
        await consumer.seek("latest")
        assert await is_quiet(consumer)


@pytest.mark.parametrize("wrong", ["middle", -1, 1.5, None, kledger.MessageId(1, 1, 0, 7)])
async def test_bad_targets_are_refused(client: kledger.Client, wrong: object) -> None:
    consumer = await client.subscribe("orders", "s", initial_position="earliest")
    reader = await client.create_reader("orders", "earliest")
    with pytest.raises(kledger.InvalidArgument):
        await consumer.seek(wrong)  # type: ignore[arg-type]
    with pytest.raises(kledger.InvalidArgument):
        await reader.seek(wrong)  # type: ignore[arg-type]
    await send(client, "orders", [b"v"])
    assert [b"v"] == await receive_values(consumer, 1)
