"""Publishing: where values go, what a failure does, full topics, closing."""

import asyncio
from collections.abc import Sequence

import pytest

import kledger
from kledger.serializers import from_json, to_json
from tests.native.contract.named_topics.words import publish, receive, receive_values, soon, until
from tests.native.contract.words import turn_loop, values

OrderBy = kledger.OrderBy


class Order(bytes):
    """A value that says which others it must stay in order with."""

    def order_id(self) -> int:
        return 7


async def channels_of(
    topic: kledger.NamedTopic, given: Sequence[bytes], order_by: OrderBy | str
) -> list[int]:
    """Publish these and return their channels."""
    async with await topic.create_publisher(order_by=order_by) as publisher:
        assert topic.channel_count == publisher.channel_count
        return [(await publisher.publish(value)).channel for value in given]


async def test_ordering_options_choose_the_channel(topic: kledger.NamedTopic) -> None:
    ten = values(10)
    assert 1 == len(set(await channels_of(topic, ten, "thread")))
    assert [2] * 10 == await channels_of(topic, ten, OrderBy.id(5))
    by_value = await channels_of(topic, ten, OrderBy.value(lambda value: int(value) // 2))
    assert [0, 0, 1, 1, 2, 2, 0, 0, 1, 1] == by_value
    rounds = await channels_of(topic, ten, OrderBy.round_robin())
    assert [(rounds[0] + step) % 3 for step in range(10)] == rounds
    assert 1 < len(set(await channels_of(topic, values(60), OrderBy.none())))
    for option in (OrderBy.id(0), "round_robin", "none"):
        assert [1, 1] == await channels_of(topic, [Order(b"a"), Order(b"b")], option)


async def test_options_of_another_kind_are_refused(topic: kledger.NamedTopic) -> None:
    for options in (
        {"order_by": "key"},
        {"order_by": 5},
        {"on_failure": "retry"},
    ):
        with pytest.raises(kledger.IllegalArgument, match=next(iter(options))):
            await topic.create_publisher(**options)
    with pytest.raises(kledger.IllegalArgument):
        OrderBy.id("5")  # type: ignore[arg-type]
    with pytest.raises(kledger.IllegalArgument):
        OrderBy.value(5)  # type: ignore[arg-type]


async def test_position_is_that_of_the_element(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber()
    publisher = await topic.create_publisher(order_by="round_robin")
    sent = await asyncio.gather(*(publisher.publish(each) for each in values(30)))
    found = await receive(subscriber, 30)
    assert sorted(zip(values(30), sent, strict=True)) == sorted(
        (each.binary_value or b"", kledger.PublishStatus(each.channel, each.position))
        for each in found
    )
    for channel in range(3):
        mine = [int(each.value) for each in found if each.channel == channel]
        assert sorted(mine) == mine


async def test_closed_publisher_refuses_and_has_sent_what_was_outstanding(
    topic: kledger.NamedTopic,
) -> None:
    subscriber = await topic.create_subscriber()
    publisher = await topic.create_publisher()
    tasks = [asyncio.create_task(publisher.publish(each)) for each in values(10)]
    await turn_loop(1)
    await publisher.close()
    await publisher.close()
    assert 10 == len(await asyncio.gather(*tasks))
    assert values(10) == await receive_values(subscriber, 10)
    with pytest.raises(kledger.IllegalState, match="closed"):
        await publisher.publish(b"late")
    await publisher.flush()


async def test_closed_publisher_of_a_topic_with_a_capacity_sends_what_there_is_room_for(
    client: kledger.Client,
) -> None:
    topic = await client.named_topic("full", channel_count=1, max_unconsumed_bytes=5_000)
    subscriber = await topic.create_subscriber(group="g")
    publisher = await topic.create_publisher(on_failure="continue")
    tasks = [asyncio.create_task(publisher.publish(each)) for each in values(10)]
    tasks.append(asyncio.create_task(publisher.publish(bytes(4_900))))
    await turn_loop(1)
    await publisher.close()
    assert values(10) == await receive_values(subscriber, 10)
    with pytest.raises(kledger.TopicFull):
        await tasks.pop()
    assert 10 == len(await asyncio.gather(*tasks))


async def test_publisher_that_waits_for_room_closes_at_once(timed_client: kledger.Client) -> None:
    """Its clock stands still, so the wait for room does not end by itself."""
    topic = await timed_client.named_topic("full", channel_count=1, max_unconsumed_bytes=5_000)
    await topic.ensure_subscriber_group("g")
    publisher = await topic.create_publisher(on_failure="continue")
    await publisher.publish(bytes(4_900))
    waiting = asyncio.create_task(publisher.publish(bytes(4_900)))
    await until(lambda: publisher._waiting_for_room)
    await soon(publisher.close())
    with pytest.raises(kledger.TopicFull):
        await waiting


async def test_failure_stops_a_publisher_unless_it_continues(topic: kledger.NamedTopic) -> None:
    too_large = bytes(3 << 20)
    stopping = await topic.create_publisher()
    with pytest.raises(kledger.KledgerError):
        await stopping.publish(too_large)
    assert not stopping.is_active
    with pytest.raises(kledger.IllegalState, match="stopped by a failure"):
        await stopping.publish(b"a")
    await stopping.flush()
    continuing = await topic.create_publisher(on_failure="continue")
    with pytest.raises(kledger.KledgerError):
        await continuing.publish(too_large)
    assert continuing.is_active
    await continuing.publish(b"a")
    with pytest.raises(kledger.IllegalArgument, match="expected bytes, got str"):
        await continuing.publish("text")


async def test_flush_waits_for_what_was_published_before(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber(complete_on_empty=True)
    publisher = await topic.create_publisher()
    tasks = [asyncio.create_task(publisher.publish(each)) for each in values(5)]
    await turn_loop(1)
    await publisher.flush()
    assert all(task.done() for task in tasks)
    assert values(5) == await receive_values(subscriber, 5)


async def test_full_topic_holds_publishers_up_until_groups_commit(client: kledger.Client) -> None:
    topic = await client.named_topic("full", channel_count=2, max_unconsumed_bytes=5_000)
    await publish(topic, [bytes(4_000)] * 3)  # without a group nothing is unconsumed
    subscriber = await topic.create_subscriber(group="g")
    failing = await topic.create_publisher(
        order_by=OrderBy.id(0), fail_on_full=True, on_failure="continue"
    )
    waiting = await topic.create_publisher(order_by=OrderBy.id(1))
    await failing.publish(bytes(4_000))
    with pytest.raises(kledger.TopicFull, match="5000"):
        await failing.publish(bytes(4_000))
    tasks = [asyncio.create_task(waiting.publish(b"%d" % n + bytes(1_900))) for n in range(6)]
    await turn_loop(100)
    assert not any(task.done() for task in tasks)
    found = []
    for _ in range(7):
        element = (await receive(subscriber, 1))[0]
        assert element.binary_value is not None
        found.append(element.binary_value[:1])
        await element.commit()
    assert [b"\0", b"0", b"1", b"2", b"3", b"4", b"5"] == found
    await soon(asyncio.gather(*tasks))
    assert issubclass(kledger.TopicFull, kledger.Full)
    await failing.publish(bytes(4_500))
    await topic.destroy_subscriber_group("g")
    await failing.publish(bytes(4_500))


async def test_serializers_are_hooks_of_both_sides(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber(
        deserializer=from_json, filter=lambda order: order["amount"] > 5
    )
    publisher = await topic.create_publisher(
        serializer=to_json, order_by=OrderBy.value(lambda order: order["customer"])
    )
    orders = [{"customer": number % 2, "amount": 3 * number} for number in range(5)]
    sent = [await publisher.publish(order) for order in orders]
    assert [0, 1, 0, 1, 0] == [each.channel for each in sent]
    found = await receive(subscriber, 3)
    assert sorted(each.value["amount"] for each in found) == [6, 9, 12]
    assert {b'{"customer":0,"amount":6}'} <= {each.binary_value for each in found}


async def test_publisher_sends_to_channels_that_were_added(
    client: kledger.Client, topic: kledger.NamedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create_partitions("orders", 4)
    publisher = await topic.create_publisher(order_by=OrderBy.id(3))
    await until(lambda: publisher.channel_count == 4)
    assert 3 == (await publisher.publish(b"a")).channel
