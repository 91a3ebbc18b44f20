"""The administration of topics and subscriptions."""

import pytest

import kledger
from tests.native.contract.words import is_quiet, receive, receive_values, send, values


async def test_topics_come_and_go(client: kledger.Client) -> None:
    assert [] == await client.topics()
    await client.create_topic("orders", partitions=3, config={"retention.ms": "1000"})
    await client.create_topic("bills")
    assert ["bills", "orders"] == await client.topics()
    with pytest.raises(kledger.TopicExists):
        await client.create_topic("persistent://public/default/orders")
    await client.delete_topic("orders")
    assert ["bills"] == await client.topics()


@pytest.mark.parametrize("name", ["", "a b", None, "x" * 300])
async def test_bad_topics_are_refused(client: kledger.Client, name: str) -> None:
    with pytest.raises(kledger.InvalidArgument):
        await client.create_topic(name)


async def test_bad_settings_of_topics_are_refused(client: kledger.Client) -> None:
    with pytest.raises(kledger.InvalidArgument):
        await client.create_topic("orders", partitions=0)
    with pytest.raises(kledger.InvalidArgument):
        await client.create_topic("orders", config={"nonsense": "1"})
    assert [] == await client.topics()


async def test_missing_topic_is_not_found(client: kledger.Client) -> None:
    for call in (
        client.delete_topic("x"), client.topic_stats("x"), client.terminate("x"),
        client.subscriptions("x"), client.subscription_stats("x", "s"),
        client.reset_subscription("x", "s", "earliest"), client.skip_messages("x", "s", 1),
        client.clear_backlog("x", "s"), client.create_subscription("x", "s"),
        client.delete_subscription("x", "s"), client.peek_messages("x", "s", 1),
    ):  # fmt: skip
        with pytest.raises(kledger.TopicNotFound):
            await call
    assert [] == await client.topics()


async def test_missing_subscription_is_not_found(client: kledger.Client, topic: str) -> None:
    for call in (
        client.subscription_stats(topic, "s"), client.reset_subscription(topic, "s", "earliest"),
        client.skip_messages(topic, "s", 1), client.clear_backlog(topic, "s"),
        client.delete_subscription(topic, "s"), client.peek_messages(topic, "s", 1),
    ):  # fmt: skip
        with pytest.raises(kledger.SubscriptionNotFound):
            await call


async def test_producers_and_consumers_make_missing_topics(client: kledger.Client) -> None:
    await client.create_producer("a")
    await client.subscribe("b", "s")
    assert ["a", "b"] == await client.topics()


async def test_numbers_of_a_topic(client: kledger.Client, topic: str) -> None:
    await client.subscribe(topic, "s")
    await send(client, topic, values(10))
    stats = await client.topic_stats(topic)
    assert (topic, ("s",)) == (stats.name, stats.subscriptions)
    assert 10 == sum(each.end_offset - each.log_start_offset for each in stats.partitions)
    assert sum(each.size_bytes for each in stats.partitions) > 10


async def test_subscription_without_a_consumer_keeps_its_position(
    client: kledger.Client, topic: str
) -> None:
    await send(client, topic, [b"old"])
    await client.create_subscription(topic, "s")
    await client.create_subscription(topic, "all", "earliest")
    await client.create_subscription(topic, "s", "earliest")
    await send(client, topic, [b"new"])
    assert ["all", "s"] == await client.subscriptions(topic)
    stats = await client.subscription_stats(topic, "s")
    assert (None, 1, ()) == (stats.type, stats.backlog, stats.consumers)
    assert [b"new"] == await receive_values(await client.subscribe(topic, "s"), 1)
    assert 2 == (await client.subscription_stats(topic, "all")).backlog


async def test_skip_clear_and_peek(client: kledger.Client) -> None:
    await client.create_topic("orders")
    await client.create_subscription("orders", "s")
    sent = await send(client, "orders", values(10))
    await client.skip_messages("orders", "s", 4)
    assert 6 == (await client.subscription_stats("orders", "s")).backlog
    peeked = await client.peek_messages("orders", "s", 5)
    assert sent[4:] == [each.id for each in peeked]
    await client.clear_backlog("orders", "s")
    assert 0 == (await client.subscription_stats("orders", "s")).backlog
    assert [] == await client.peek_messages("orders", "s", 5)
    consumer = await client.subscribe("orders", "s")
    assert await is_quiet(consumer)


async def test_reset_from_outside_moves_consumers(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    sent = await send(client, topic, values(10), key=b"k")
    for message in await receive(consumer, 10):
        await consumer.acknowledge(message)
    before = (await client.subscription_stats(topic, "s")).revision_num
    await client.reset_subscription(topic, "s", sent[7])
    assert values(3, first=7) == await receive_values(consumer, 3)
    stats = await client.subscription_stats(topic, "s")
    assert stats.revision_num > before
    assert not stats.is_under_revision
    await client.reset_subscription(topic, "s", sent[7], inclusive=False)
    assert values(2, first=8) == await receive_values(consumer, 2)
    await client.reset_subscription(topic, "s", "earliest")
    assert values(10) == await receive_values(consumer, 10)


async def test_unsubscribe_removes_the_subscription(client: kledger.Client, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    await consumer.unsubscribe()
    assert [] == await client.subscriptions(topic)
    with pytest.raises(kledger.AlreadyClosed):
        await consumer.receive()
    fleeting = await client.subscribe(topic, "f", durable=False)
    await fleeting.unsubscribe()


async def test_unsubscribe_leaves_others_alone(client: kledger.Client, topic: str) -> None:
    one, two = [await client.subscribe(topic, "s", consumer_type="shared") for _ in range(2)]
    with pytest.raises(kledger.ConsumerBusy):
        await one.unsubscribe()
    await two.close()
    await send(client, topic, values(4))
    assert set(values(4)) == set(await receive_values(one, 4))


async def test_subscription_with_consumers_is_removed_by_force_only(
    client: kledger.Client, topic: str
) -> None:
    consumer = await client.subscribe(topic, "s")
    with pytest.raises(kledger.ConsumerBusy):
        await client.delete_subscription(topic, "s")
    await client.delete_subscription(topic, "s", force=True)
    assert [] == await client.subscriptions(topic)
    with pytest.raises(kledger.KledgerError):
        await consumer.receive(timeout_ms=5_000)


async def test_client_closes_its_producers_and_consumers(
    client: kledger.Client, topic: str
) -> None:
    """Leaving the client is done by the fixture; here things are left open on purpose."""
    await client.create_producer(topic)
    await client.subscribe(topic, "s")
    await client.create_reader(topic, "earliest")


async def test_partitions_are_added(client: kledger.Client) -> None:
    await client.create_topic("orders")
    await client.create_partitions("persistent://public/default/orders", 3)
    assert 3 == len((await client.topic_stats("orders")).partitions)
    for count in (2, 3):
        with pytest.raises(kledger.InvalidArgument):
            await client.create_partitions("orders", count)
    with pytest.raises(kledger.TopicNotFound):
        await client.create_partitions("missing", 2)


async def test_same_message_in_the_words_of_both_facades(
    client: kledger.Client, topic: str
) -> None:
    for sent in await send(client, topic, values(30)):
        assert sent.offset is not None
        found = await client.position_of(topic, sent.partition, sent.offset)
        assert (sent, sent.offset) == (found, found.offset)
        assert sent.acknowledgement() == found.acknowledgement()
        kept = kledger.MessageId.from_bytes(sent.to_bytes())
        assert sent.offset == await client.offset_of(kept, topic)
    with pytest.raises(kledger.InvalidArgument, match="expected 0 to"):
        await client.position_of(topic, 0, 30)
    with pytest.raises(kledger.InvalidArgument, match="no record"):
        await client.offset_of(kledger.MessageId(1 << 40, 0), topic)


async def test_termination_returns_the_last_message_of_each_partition(
    client: kledger.Client, topic: str
) -> None:
    sent = await send(client, topic, values(30))
    consumer = await client.subscribe(topic, "s")
    newest = await consumer.get_last_message_id(partition=sent[-1].partition)
    assert (sent[-1], sent[-1].offset) == (newest, newest.offset)
    ends = await client.terminate(topic)
    for partition, end in enumerate(ends):
        own = [each for each in sent if each.partition == partition]
        expected = max(own, default=kledger.MessageId(-1, -1, partition=partition))
        assert (expected, expected.offset) == (end, end.offset)
    assert ends == await client.terminate(topic)
