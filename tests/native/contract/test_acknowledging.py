"""The guarantees of acknowledging."""

import asyncio
from typing import Any

import pytest

import kledger
from tests.native.contract.words import (
    SOON_MS,
    is_quiet,
    receive,
    receive_values,
    send,
    values,
)


async def backlog(client: kledger.Client, topic: str) -> int:
    return (await client.subscription_stats(topic, "s")).backlog


async def test_returned_acknowledgement_is_in_the_statistics(
    client: kledger.Client, topic: str
) -> None:
    consumer = await client.subscribe(topic, "s", consumer_type="shared")
    await send(client, topic, values(20))
    received = await receive(consumer, 20)
    stats = await client.subscription_stats(topic, "s")
    assert (20, 20) == (stats.backlog, stats.unacknowledged)
    for count, message in enumerate(received[:5], 1):
        await consumer.acknowledge(message)
        assert 20 - count == await backlog(client, topic)
    await asyncio.gather(*(consumer.acknowledge(message) for message in received[5:]))
    stats = await client.subscription_stats(topic, "s")
    assert (0, 0) == (stats.backlog, stats.unacknowledged)


async def test_record_of_a_batch_is_acknowledged_alone(client: kledger.Client) -> None:
    async with await client.subscribe("orders", "s") as consumer:
        sent = await send(client, "orders", values(10))
        assert 1 == len({each.entry_id for each in sent})
        for message in (await receive(consumer, 10))[1:9:2]:
            await consumer.acknowledge(message)
    consumer = await client.subscribe("orders", "s")
    assert [b"0", b"2", b"4", b"6", b"8", b"9"] == await receive_values(consumer, 6)
    assert await is_quiet(consumer)


@pytest.mark.parametrize("form", ["message", "its id", "the id of send", "the id from bytes"])
async def test_every_form_of_an_id_acknowledges(
    client: kledger.Client, topic: str, form: str
) -> None:
    consumer = await client.subscribe(topic, "s")
    sent = await send(client, topic, values(5))
    for message in await receive(consumer, 5):
        id_ = next(each for each in sent if each == message.id)
        forms: dict[str, kledger.Message | kledger.MessageId] = {
            "message": message,
            "its id": message.id,
            "the id of send": id_,
            "the id from bytes": kledger.MessageId.from_bytes(id_.to_bytes()),
        }
        await consumer.acknowledge(forms[form])
    assert 0 == await backlog(client, topic)


async def test_several_messages_are_acknowledged_in_one_call(
    client: kledger.Client, topic: str
) -> None:
    """Of several entries and partitions, in any order, twice, and by their ids, too."""
    consumer = await client.subscribe(topic, "s", consumer_type="shared")
    for first in (0, 10, 20):
        await send(client, topic, values(10, first=first))
    received = await receive(consumer, 30)
    await consumer.acknowledge(received[:4])
    assert 26 == await backlog(client, topic)
    await consumer.acknowledge([*received[24:18:-2], received[20], received[26].id])
    assert 22 == await backlog(client, topic)
    await consumer.acknowledge([])
    await consumer.acknowledge(message for message in received)
    assert 0 == await backlog(client, topic)


async def test_of_several_messages_none_is_acknowledged_if_one_is_wrong(
    client: kledger.Client,
) -> None:
    consumer = await client.subscribe("orders", "s")
    other = await client.subscribe("others", "s")
    await send(client, "orders", values(3))
    await send(client, "others", [b"v"])
    received, (foreign,) = await receive(consumer, 3), await receive(other, 1)
    nothing: Any = None
    wrongs: list[Any] = [foreign, kledger.MessageId(5, 1, 0, 9), "x", nothing]
    for wrong in wrongs:
        with pytest.raises(kledger.InvalidArgument):
            await consumer.acknowledge([*received, wrong])
    with pytest.raises(kledger.InvalidArgument):
        await consumer.acknowledge(nothing)
    assert 3 == await backlog(client, "orders")


async def test_repeated_acknowledgement_counts_once(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    await send(client, topic, values(3))
    received = await receive(consumer, 3)
    await asyncio.gather(*(consumer.acknowledge(received[0]) for _ in range(3)))
    await consumer.acknowledge(received[0])
    assert 2 == await backlog(client, topic)


@pytest.mark.parametrize("consumer_type", ["exclusive", "failover"])
async def test_cumulative_acknowledges_earlier_messages_of_its_partition(
    client: kledger.Client, topic: str, consumer_type: str
) -> None:
    consumer = await client.subscribe(topic, "s", consumer_type=consumer_type)
    await send(client, topic, values(10), key=b"k")
    await send(client, topic, values(10, first=10), key=b"k")
    received = await receive(consumer, 20)
    await consumer.acknowledge_cumulative(received[4])
    assert 15 == await backlog(client, topic)
    await consumer.acknowledge_cumulative(received[2])
    assert 15 == await backlog(client, topic)
    await consumer.acknowledge_cumulative(received[13].id)
    assert 6 == await backlog(client, topic)
    await consumer.close()
    consumer = await client.subscribe(topic, "s", consumer_type=consumer_type)
    assert values(6, first=14) == await receive_values(consumer, 6)


@pytest.mark.parametrize("consumer_type", ["shared", "key_shared"])
async def test_shared_consumers_cannot_acknowledge_cumulatively(
    client: kledger.Client, topic: str, consumer_type: str
) -> None:
    consumer = await client.subscribe(topic, "s", consumer_type=consumer_type)
    await send(client, topic, [b"v"])
    (message,) = await receive(consumer, 1)
    with pytest.raises(kledger.InvalidArgument):
        await consumer.acknowledge_cumulative(message)
    await consumer.acknowledge(message)


async def test_late_acknowledgement_from_before_a_seek_is_ignored(
    client: kledger.Client, topic: str
) -> None:
    consumer = await client.subscribe(topic, "s")
    await send(client, topic, values(6))
    before = await receive(consumer, 6)
    await consumer.seek("earliest")
    for message in before:
        await consumer.acknowledge(message)
        await consumer.acknowledge_cumulative(message.id)
        await consumer.negative_acknowledge(message)
    assert 6 == await backlog(client, topic)
    for message in await receive(consumer, 6):
        await consumer.acknowledge(message)
    assert 0 == await backlog(client, topic)


async def test_cancelled_acknowledgement_harms_no_other(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    await send(client, topic, values(30))
    received = await receive(consumer, 30)
    tasks = [asyncio.ensure_future(consumer.acknowledge(message)) for message in received]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SOON_MS / 1000)
    assert all(task.exception() is None for task in tasks if not task.cancelled())
    await asyncio.gather(*(consumer.acknowledge(message) for message in received))
    assert 0 == await backlog(client, topic)


async def test_foreign_and_invalid_messages_are_refused(client: kledger.Client) -> None:
    consumer = await client.subscribe("orders", "s")
    other = await client.subscribe("others", "s")
    await send(client, "others", [b"v"])
    (message,) = await receive(other, 1)
    text: Any = "1"
    nowhere = [kledger.MessageId(1, 1, 0, partition=7), kledger.MessageId(1 << 63, 0)]
    for wrong in (message, *nowhere, kledger.MessageId(text, text), b"x", None):
        with pytest.raises(kledger.InvalidArgument):
            await consumer.acknowledge(wrong)  # type: ignore[arg-type]


async def test_failed_acknowledgement_does_not_fail_others(
    client: kledger.Client, topic: str
) -> None:
    consumer = await client.subscribe(topic, "s")
    await send(client, topic, values(3))
    ids: list[kledger.Message | kledger.MessageId] = [*await receive(consumer, 3)]
    ids.insert(1, kledger.MessageId(1 << 40, 0))
    outcomes = await asyncio.gather(*map(consumer.acknowledge, ids), return_exceptions=True)
    assert isinstance(outcomes.pop(1), kledger.InvalidArgument)
    assert [None, None, None] == outcomes
    assert 0 == await backlog(client, topic)


async def test_close_waits_for_pending_acknowledgements(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    await send(client, topic, values(10))
    received = await receive(consumer, 10)
    tasks = [asyncio.ensure_future(consumer.acknowledge(message)) for message in received]
    await asyncio.sleep(0)
    await consumer.close()
    await asyncio.gather(*tasks)
    assert 0 == await backlog(client, topic)
