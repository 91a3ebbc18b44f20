"""The guarantees of a producer."""

import asyncio
from typing import Any

import pytest

import kledger
from kledger.native.client.partitioner import partition_of_key
from tests.native.contract.words import receive, receive_values, send, values


async def test_message_arrives_as_it_was_sent(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic, producer_name="p")
    sent = await producer.send(
        b"value",
        key=b"key",
        properties={"colour": "grün"},
        event_timestamp=1_234,
        sequence_id=7,
    )
    (message,) = await receive(consumer, 1)
    assert sent == message.id
    assert (topic, b"key", b"value") == (message.topic, message.key, message.value)
    assert ({"colour": "grün"}, 1_234, 1_234) == (
        message.properties, message.event_timestamp, message.publish_timestamp
    )  # fmt: skip
    assert ("p", 7, 0, 0) == (
        message.producer_name, message.sequence_id, message.redelivery_count, message.offset
    )  # fmt: skip
    assert ("colour", "grün".encode()) in message.headers
    assert message.partition == message.id.partition


async def test_key_may_be_text(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic)
    text, data = (
        await producer.send(b"v", key="grün"),
        await producer.send(b"v", key="grün".encode()),
    )
    assert text.partition == data.partition
    assert ["grün".encode()] * 2 == [each.key for each in await receive(consumer, 2)]


async def test_id_of_a_send_knows_the_offset(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    sent = await send(client, topic, values(30))
    offsets = {each.id: (each.id.offset, each.offset) for each in await receive(consumer, 30)}
    assert {each: (each.offset, each.offset) for each in sent} == offsets
    kept = kledger.MessageId.from_bytes(sent[0].to_bytes())
    assert (sent[0], None) == (kept, kept.offset)


async def test_bare_message_has_the_time_of_its_sending(client: kledger.Client) -> None:
    consumer = await client.subscribe("orders", "s")
    await send(client, "orders", [b"v"])
    (message,) = await receive(consumer, 1)
    assert (None, None, None) == (message.key, message.event_timestamp, message.producer_name)
    assert ({}, []) == (message.properties, message.headers)
    assert message.publish_timestamp > 1_600_000_000_000


async def test_ids_of_sends_are_those_of_the_messages(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    sent = await send(client, topic, values(300))
    received = await receive(consumer, 300)
    by_value = {message.value: message.id for message in received}
    assert dict(zip(values(300), sent, strict=True)) == by_value


async def test_sends_at_once_share_batches_and_keep_their_order(client: kledger.Client) -> None:
    consumer = await client.subscribe("orders", "s")
    sent = await send(client, "orders", values(500))
    assert sorted(sent) == sent
    assert len({each.entry_id for each in sent}) < 50
    assert values(500) == await receive_values(consumer, 500)


async def test_messages_of_one_key_keep_their_order(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    await asyncio.gather(*(send(client, topic, values(50), key=key) for key in (b"a", b"b", b"c")))
    received = await receive(consumer, 150)
    for key in (b"a", b"b", b"c"):
        assert values(50) == [each.value for each in received if each.key == key]


async def test_offsets_of_a_partition_are_dense(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    await send(client, topic, values(100))
    offsets: dict[int, list[int]] = {}
    for message in await receive(consumer, 100):
        offsets.setdefault(message.partition, []).append(message.offset)
    assert all(list(range(len(found))) == found for found in offsets.values())


async def test_without_batching_every_message_is_an_entry(client: kledger.Client) -> None:
    consumer = await client.subscribe("orders", "s")
    producer = await client.create_producer("orders", batching=False)
    sent = await asyncio.gather(*(producer.send(each) for each in values(250)))
    assert {0} == {each.batch_index for each in sent}
    assert 250 == len({each.position for each in sent})
    assert values(250) == await receive_values(consumer, 250)


async def test_key_maps_to_kafkas_partition(client: kledger.Client) -> None:
    await client.create_topic("orders", partitions=5)
    producer = await client.create_producer("orders")
    for key in (b"a", b"foobar", b"\xff\x00"):
        sent = await producer.send(b"v", key=key)
        assert partition_of_key(key, 5) == sent.partition


async def test_messages_without_a_key_go_round(client: kledger.Client) -> None:
    await client.create_topic("orders", partitions=3)
    producer = await client.create_producer("orders")
    partitions = [(await producer.send(b"v")).partition for _ in range(6)]
    assert {0, 1, 2} == set(partitions[:3])
    assert partitions[:3] == partitions[3:]


async def test_send_nowait_keeps_the_order_and_raises_full(client: kledger.Client) -> None:
    consumer = await client.subscribe("orders", "s")
    producer = await client.create_producer("orders", max_pending=10)
    outcomes = [producer.send_nowait(each, key="k") for each in values(10)]
    with pytest.raises(kledger.Full):
        producer.send_nowait(b"one too many")
    sent = await asyncio.gather(*outcomes)
    assert list(range(10)) == [each.offset for each in sent]
    await producer.flush()
    last = producer.send_nowait(b"10")
    assert values(11) == await receive_values(consumer, 11)
    assert 10 == (await last).offset


async def test_few_pending_at_once_change_neither_number_nor_order(client: kledger.Client) -> None:
    consumer = await client.subscribe("orders", "s")
    producer = await client.create_producer("orders", max_pending=2)
    sent = await asyncio.gather(*(producer.send(each) for each in values(20)))
    assert sorted(sent) == sent
    assert values(20) == await receive_values(consumer, 20)


async def test_tombstone_and_empty_value(client: kledger.Client) -> None:
    consumer = await client.subscribe("orders", "s")
    producer = await client.create_producer("orders")
    await producer.send(None, key=b"k")
    await producer.send(b"", key=b"k")
    assert [None, b""] == await receive_values(consumer, 2)


async def test_message_that_is_refused_takes_no_other_along(client: kledger.Client) -> None:
    """They leave in one batch; the server refuses the batch."""
    await client.create_topic("orders", config={"max.message.bytes": "1000"})
    consumer = await client.subscribe("orders", "s")
    producer = await client.create_producer("orders")
    outcomes = await asyncio.gather(
        producer.send(b"a"), producer.send(bytes(2_000)), producer.send(b"b"),
        return_exceptions=True,
    )  # fmt: skip
    assert isinstance(outcomes[1], kledger.InvalidArgument)
    assert [b"a", b"b"] == await receive_values(consumer, 2)
    await producer.send(b"c")
    assert [b"c"] == await receive_values(consumer, 1)


async def test_flush_returns_when_all_sends_have_ended(client: kledger.Client, topic: str) -> None:
    producer = await client.create_producer(topic, max_pending=10)
    sends = [asyncio.ensure_future(producer.send(each)) for each in values(100)]
    await asyncio.sleep(0)
    await producer.flush()
    assert all(each.done() for each in sends)
    await producer.flush()


async def test_close_waits_for_pending_sends(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic)
    sends = [asyncio.ensure_future(producer.send(each)) for each in values(100)]
    await asyncio.sleep(0)
    await producer.close()
    await producer.close()
    assert all(each.exception() is None for each in sends)
    assert sorted(values(100)) == sorted(
        each or b"" for each in await receive_values(consumer, 100)
    )
    with pytest.raises(kledger.AlreadyClosed):
        await producer.send(b"late")


async def test_terminated_topic_refuses_messages(client: kledger.Client, topic: str) -> None:
    producer = await client.create_producer(topic)
    await producer.send(b"v")
    last = await client.terminate(topic)
    assert len(last) == (await client.topic_stats(topic)).partitions.__len__()
    with pytest.raises(kledger.TopicTerminated):
        await producer.send(b"w")
    with pytest.raises(kledger.TopicTerminated):
        await client.create_producer(topic)
    consumer = await client.subscribe(topic, "s", initial_position="earliest")
    assert [b"v"] == await receive_values(consumer, 1)


async def test_long_name_is_the_same_topic(client: kledger.Client) -> None:
    consumer = await client.subscribe("persistent://public/default/orders", "s")
    await send(client, "orders", [b"v"])
    (message,) = await receive(consumer, 1)
    assert ("orders", "orders") == (message.topic, consumer.topic)
    assert ["orders"] == await client.topics()


async def test_delayed_message_waits_and_blocks_no_other(
    client: kledger.Client, topic: str
) -> None:
    consumer = await client.subscribe(topic, "s", consumer_type="shared")
    producer = await client.create_producer(topic)
    sent = await asyncio.gather(
        producer.send(b"tomorrow", key=b"k", deliver_after_ms=86_400_000),
        producer.send(b"now", key=b"k"),
        producer.send(b"past", key=b"k", deliver_at=1),
    )
    assert 3 == len(set(sent))
    assert {b"now", b"past"} == set(await receive_values(consumer, 2))
    begin = asyncio.get_running_loop().time()
    later = await producer.send(b"later", key=b"k", deliver_after_ms=100)
    (message,) = await receive(consumer, 1)
    assert (b"later", later, 0) == (message.value, message.id, message.redelivery_count)
    assert asyncio.get_running_loop().time() - begin >= 0.09


@pytest.mark.parametrize(
    "given",
    [
        {"value": "text"},
        {"key": 1},
        {"key": "\ud800"},
        {"properties": {"a": 1}},
        {"event_timestamp": -1},
        {"deliver_at": -1},
        {"deliver_after_ms": -1},
        {"deliver_at": 1, "deliver_after_ms": 1},
        {"sequence_id": "x"},
    ],
)
async def test_bad_values_are_refused(client: kledger.Client, given: dict[str, Any]) -> None:
    producer = await client.create_producer("orders")
    with pytest.raises(kledger.InvalidArgument):
        await producer.send(**{"value": b"v"} | given)
    assert 0 == (await producer.send(b"still works")).entry_id


@pytest.mark.parametrize(
    "given", [{"topic": ""}, {"topic": "a b"}, {"max_pending": 0}, {"producer_name": ""}]
)
async def test_bad_producers_are_refused(client: kledger.Client, given: dict[str, Any]) -> None:
    with pytest.raises(kledger.InvalidArgument):
        await client.create_producer(**{"topic": "orders"} | given)
