"""Redelivery: which messages, when, and dead letters."""

import asyncio
import logging

import pytest

import kledger
from kledger.ledger.testing import ManualClock
from tests.native.contract.words import (
    SOON_MS,
    is_quiet,
    receive,
    receive_values,
    send,
    turn_loop,
    until_backlog,
    values,
)

SHARED = ["shared", "key_shared"]
ONE_ACTIVE = ["exclusive", "failover"]


@pytest.mark.parametrize("consumer_type", SHARED)
async def test_negative_acknowledgement_redelivers_the_record(
    client: kledger.Client, topic: str, consumer_type: str
) -> None:
    consumer = await client.subscribe(
        topic, "s", consumer_type=consumer_type, negative_ack_redelivery_delay_ms=20
    )
    await send(client, topic, values(10))
    for message in await receive(consumer, 10):
        assert 0 == message.redelivery_count
        if message.value in {b"3", b"7"}:
            await consumer.negative_acknowledge(message)
        else:
            await consumer.acknowledge(message.id)
    again = await receive(consumer, 2)
    assert {(b"3", 1), (b"7", 1)} == {(each.value, each.redelivery_count) for each in again}
    await consumer.negative_acknowledge(again[0].id)
    (third,) = await receive(consumer, 1)
    assert (again[0].value, 2) == (third.value, third.redelivery_count)


@pytest.mark.parametrize("consumer_type", ONE_ACTIVE)
async def test_single_consumer_gets_all_unacknowledged_records_again_in_order(
    clock: ManualClock, client: kledger.Client, topic: str, consumer_type: str
) -> None:
    consumer = await client.subscribe(
        topic,
        "s",
        consumer_type=consumer_type,
        negative_ack_redelivery_delay_ms=20,
        receiver_queue_size=4,
    )
    await send(client, topic, values(10), key=b"k")
    received = await receive(consumer, 5)
    await consumer.acknowledge(received[0])
    await consumer.acknowledge(received[3])
    await consumer.negative_acknowledge(received[2])
    clock.advance(20)
    await turn_loop()
    again = await receive(consumer, 8)
    found = [(message.value, message.redelivery_count) for message in again]
    assert [b"1", b"2", b"4", b"5", b"6", b"7", b"8", b"9"] == [value for value, _ in found]
    assert [(b"1", 1), (b"2", 1), (b"4", 1)] == found[:3]


@pytest.mark.parametrize("consumer_type", [*SHARED, *ONE_ACTIVE])
async def test_deliveries_in_flight_do_not_precede_the_redelivery(
    client: kledger.Client, topic: str, consumer_type: str
) -> None:
    """However far deliveries have got when the redelivery is requested."""
    consumer = await client.subscribe(
        topic, "s", consumer_type=consumer_type, receiver_queue_size=6
    )
    await send(client, topic, values(20), key=b"k")
    for count in range(30):
        received = await receive(consumer, 3)
        assert values(3) == [each.value for each in received]
        assert {count} == {each.redelivery_count for each in received}
        await turn_loop(count)
        await consumer.redeliver_unacknowledged()
    assert values(20) == await receive_values(consumer, 20)
    assert await is_quiet(consumer)


async def test_acknowledging_after_all_takes_a_negative_one_back(
    clock: ManualClock, client: kledger.Client, topic: str
) -> None:
    consumer = await client.subscribe(
        topic, "s", consumer_type="shared", negative_ack_redelivery_delay_ms=30
    )
    await send(client, topic, [b"v"], key=b"k")
    (message,) = await receive(consumer, 1)
    await consumer.negative_acknowledge(message)
    await consumer.acknowledge(message)
    clock.advance(30)
    await send(client, topic, [b"next"], key=b"k")
    assert [b"next"] == await receive_values(consumer, 1)


@pytest.mark.parametrize("consumer_type", [*SHARED, *ONE_ACTIVE])
async def test_what_is_not_acknowledged_in_time_comes_again(
    clock: ManualClock, client: kledger.Client, topic: str, consumer_type: str
) -> None:
    consumer = await client.subscribe(topic, "s", consumer_type=consumer_type, ack_timeout_ms=50)
    await send(client, topic, values(4), key=b"k")
    received = await receive(consumer, 4)
    for message in received[1:]:
        await consumer.acknowledge(message)
    clock.advance(50)
    (again,) = await receive(consumer, 1)
    assert (b"0", 1) == (again.value, again.redelivery_count)
    await consumer.acknowledge(again)
    await until_backlog(client, topic, "s", 0)


@pytest.mark.parametrize("consumer_type", [*SHARED, *ONE_ACTIVE])
async def test_redeliver_delivers_all_unacknowledged_messages(
    client: kledger.Client, topic: str, consumer_type: str
) -> None:
    """Also queued messages; none is delivered twice."""
    consumer = await client.subscribe(
        topic, "s", consumer_type=consumer_type, receiver_queue_size=8
    )
    await send(client, topic, values(20), key=b"k")
    received = await receive(consumer, 10)
    await consumer.acknowledge(received[4])
    await consumer.redeliver_unacknowledged()
    again = await receive(consumer, 19)
    assert set(values(20)) - {b"4"} == {each.value for each in again}
    assert await is_quiet(consumer)
    assert [each for each in values(20) if each != b"4"] == [each.value for each in again]


async def test_unacknowledged_messages_of_a_closed_consumer_go_to_another(
    client: kledger.Client, topic: str
) -> None:
    one = await client.subscribe(topic, "s", consumer_type="shared")
    await send(client, topic, values(10))
    received = await receive(one, 6)
    await one.acknowledge(received[0])
    other = await client.subscribe(topic, "s", consumer_type="shared")
    await one.close()
    assert set(values(10)) - {received[0].value} == set(await receive_values(other, 9))


@pytest.mark.parametrize("consumer_type", ["shared", "key_shared", "exclusive"])
async def test_dead_letter_was_delivered_once_more_than_the_maximum(
    client: kledger.Client, topic: str, consumer_type: str
) -> None:
    letters = await client.subscribe(f"{topic}-s-DLQ", "letters")
    consumer = await client.subscribe(
        topic,
        "s",
        consumer_type=consumer_type,
        negative_ack_redelivery_delay_ms=1,
        dead_letter=kledger.DeadLetterPolicy(max_redeliver_count=2),
    )
    producer = await client.create_producer(topic)
    sent = await producer.send(b"bad", key=b"k", properties={"a": "b"}, event_timestamp=77)
    for count in range(3):
        (message,) = await receive(consumer, 1)
        assert (b"bad", count) == (message.value, message.redelivery_count)
        await consumer.negative_acknowledge(message)
    # No consumer receives from the first topic meanwhile.
    (letter,) = await receive(letters, 1)
    assert (b"bad", b"k", 77) == (letter.value, letter.key, letter.event_timestamp)
    assert {"a": "b", "REAL_TOPIC": topic, "ORIGIN_MESSAGE_ID": str(sent)} == letter.properties
    await until_backlog(client, topic, "s", 0)
    assert await is_quiet(consumer)
    assert await is_quiet(letters)


async def test_dead_letter_with_a_maximum_of_zero_was_delivered_once(
    clock: ManualClock, client: kledger.Client, topic: str
) -> None:
    consumer = await client.subscribe(
        topic,
        "s",
        consumer_type="shared",
        ack_timeout_ms=10,
        dead_letter=kledger.DeadLetterPolicy(max_redeliver_count=0, topic="graveyard"),
    )
    letters = await client.subscribe("graveyard", "letters")
    await send(client, topic, values(3))
    received = await receive(consumer, 3)
    await consumer.acknowledge(received[0])
    clock.advance(10)
    rest = {each.value for each in received[1:]}
    assert rest == set(await receive_values(letters, 2))
    await until_backlog(client, topic, "s", 0)


async def test_dead_letter_that_cannot_be_sent_is_not_acknowledged(
    client: kledger.Client, caplog: pytest.LogCaptureFixture
) -> None:
    await client.create_topic("full")
    await client.terminate("full")
    consumer = await client.subscribe(
        "orders",
        "s",
        consumer_type="shared",
        negative_ack_redelivery_delay_ms=1,
        dead_letter=kledger.DeadLetterPolicy(max_redeliver_count=0, topic="full"),
    )
    await send(client, "orders", [b"bad"])
    with caplog.at_level(logging.WARNING):
        (message,) = await receive(consumer, 1)
        await consumer.negative_acknowledge(message)
        while "dead letters cannot be sent to full" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert 1 == (await client.subscription_stats("orders", "s")).backlog
    await asyncio.wait_for(consumer.close(), SOON_MS / 1000)
    consumer = await client.subscribe("orders", "s", consumer_type="shared")
    assert [b"bad"] == await receive_values(consumer, 1)
