"""Groups: where they begin, their functions, destroying; options of topics."""

import asyncio

import pytest

import kledger
from kledger.runtime.manual_clock import ManualClock
from tests.native.contract.named_topics.group_functions import doubled, is_odd
from tests.native.contract.named_topics.words import (
    publish,
    receive,
    receive_values,
    soon,
    until,
)
from tests.native.contract.words import SOON_MS, send, turn_loop, values

FUNCTIONS = is_odd.__module__
NAMED = {"filter": f"{FUNCTIONS}:is_odd", "converter": f"{FUNCTIONS}:doubled"}


async def test_new_group_begins_at_the_tail_and_on_a_retaining_topic_at_the_head(
    topic: kledger.NamedTopic, retaining: kledger.NamedTopic
) -> None:
    for each in (topic, retaining):
        await publish(each, [b"before"])
        subscribers = [await each.create_subscriber(group=group) for group in ("g", None)]
        await publish(each, [b"after"])
        expected = [b"before", b"after"] if each is retaining else [b"after"]
        for subscriber in subscribers:
            assert expected == await receive_values(subscriber, len(expected))


async def test_group_that_exists_before_its_subscribers_misses_nothing(
    topic: kledger.NamedTopic,
) -> None:
    await topic.ensure_subscriber_group("g")
    await topic.ensure_subscriber_group("g")
    await publish(topic, values(2))
    assert ["g"] == await topic.subscriber_groups()
    subscriber = await topic.create_subscriber(group="g")
    assert 2 == await subscriber.get_remaining_messages()
    assert values(2) == await receive_values(subscriber, 2)


async def test_destroyed_group_disconnects_its_subscribers_for_good(
    topic: kledger.NamedTopic,
) -> None:
    subscriber = await topic.create_subscriber(group="g")
    await publish(topic, values(3))
    await receive(subscriber, 3)
    waiting = asyncio.create_task(subscriber.receive_batch(5))
    await turn_loop()
    await topic.destroy_subscriber_group("g")
    with pytest.raises(kledger.IllegalState):
        await soon(waiting)
    with pytest.raises(kledger.IllegalState):
        await subscriber.receive()
    with pytest.raises(kledger.IllegalState):
        await subscriber.seek_to_head(0)
    assert "rejected" == (await subscriber.commit(0, kledger.ChannelPosition(0, 0))).status
    assert [] == await topic.subscriber_groups()
    with pytest.raises(kledger.IllegalState):
        await topic.destroy_subscriber_group("g")
    again = await topic.create_subscriber(group="g")
    assert 0 == await again.get_remaining_messages()
    with pytest.raises(kledger.IllegalState):
        await subscriber.receive()


async def test_subscriber_of_a_destroyed_group_does_not_join_its_successor(
    topic: kledger.NamedTopic,
) -> None:
    away, polling = [await topic.create_subscriber(group="g") for _ in range(2)]
    await away.disconnect()
    await topic.destroy_subscriber_group("g")
    await topic.ensure_subscriber_group("g")
    successor = await topic.create_subscriber(group="g")
    await publish(topic, values(1))
    for subscriber in (away, polling):
        with pytest.raises(kledger.IllegalState):
            await soon(subscriber.receive())
    await successor.disconnect()
    assert values(1) == await receive_values(successor, 1)


async def test_filter_and_converter_of_a_subscriber(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber(group="g", filter=is_odd, converter=doubled)
    positions = await publish(topic, values(13))
    found = await receive(subscriber, 5)
    assert [b"2", b"6", b"10", b"14", b"22"] == [each.value for each in found]
    assert b"11" == found[4].binary_value
    # What was filtered out is covered by the commit of a later element.
    await found[4].commit()
    assert positions[11] == await subscriber.get_last_committed(0)
    assert 1 == await subscriber.get_remaining_messages()


async def test_functions_of_a_group_are_those_of_all_its_subscribers(
    topic: kledger.NamedTopic,
) -> None:
    await topic.ensure_subscriber_group("g", **NAMED)
    for named in (None, NAMED["filter"]):
        async with await topic.create_subscriber(group="g", filter=named) as subscriber:
            await publish(topic, values(4))
            found = await receive(subscriber, 2)
            assert [b"2", b"6"] == [each.value for each in found]
            assert [b"2", b"6"] == [each.binary_value for each in found]
            await subscriber.seek_to_tail_and_commit(0)
    with pytest.raises(kledger.IllegalArgument, match=r"filter: expected .* one of the modules"):
        await topic.ensure_subscriber_group("h", filter="os:system")
    with pytest.raises(kledger.IllegalArgument, match="filter of group g: expected"):
        await topic.create_subscriber(group="g", filter=NAMED["converter"])
    with pytest.raises(kledger.IllegalArgument, match="filter"):
        await topic.ensure_subscriber_group("g", filter=NAMED["converter"])


@pytest.mark.parametrize(
    "given",
    [
        "nowhere",
        "no.such.module:f",
        f"{FUNCTIONS}:nothing",
        5,
        f"{FUNCTIONS}:NOT_A_FUNCTION",
        "tests.native.contract.nothing:f",
    ],
)
async def test_function_that_cannot_be_loaded_is_refused(
    topic: kledger.NamedTopic, given: object
) -> None:
    with pytest.raises(kledger.IllegalArgument, match="filter"):
        await topic.create_subscriber(group="g", filter=given)  # type: ignore[arg-type]
    with pytest.raises(kledger.IllegalArgument, match="filter"):
        await topic.create_subscriber(filter=given)  # type: ignore[arg-type]
    with pytest.raises(kledger.IllegalArgument, match="filter"):
        await topic.ensure_subscriber_group("g", filter=given)  # type: ignore[arg-type]
    assert [] == await topic.describe_groups()


async def test_functions_of_a_group_run_in_the_server(topic: kledger.NamedTopic) -> None:
    """Elements that a filter skips do not cross the connection."""
    subscriber = await topic.create_subscriber(group="g", filter=NAMED["filter"])
    await publish(topic, [b"%d" % each for each in range(200)])
    fetched = subscriber._state._channels[0]
    await until(lambda: fetched.fetch_offset == 200)
    odd = [b"%d" % each for each in range(1, 200, 2)]
    assert odd == [each.binary_value for each in fetched.elements]
    assert odd == await receive_values(subscriber, 100)


async def test_own_functions_get_what_those_of_the_group_have_left(
    topic: kledger.NamedTopic,
) -> None:
    await topic.ensure_subscriber_group("g", **NAMED)
    subscriber = await topic.create_subscriber(
        group="g", deserializer=int, filter=lambda value: value != 6, converter=lambda value: -value
    )
    await publish(topic, values(8))
    assert [-2, -10, -14] == await receive_values(subscriber, 3)


async def test_element_for_which_a_function_of_the_group_raises_is_left_out(
    topic: kledger.NamedTopic,
) -> None:
    subscriber = await topic.create_subscriber(group="g", filter=NAMED["filter"])
    await publish(topic, [b"1", b"x", b"2", b"3"])
    assert [b"1"] == await receive_values(subscriber, 1)
    message = r"channel 0, 1: filter .*:is_odd failed: ValueError: .*b'x'"
    with pytest.raises(kledger.FunctionFailed, match=message):
        await soon(subscriber.receive())
    found = await receive(subscriber, 1)
    assert (b"3", 3) == (found[0].value, found[0].position.offset)
    assert "committed" == (await found[0].commit()).status
    assert 0 == await subscriber.get_remaining_messages()


async def test_converter_of_a_group_returns_bytes(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber(converter=f"{FUNCTIONS}:as_text")
    await publish(topic, values(1))
    with pytest.raises(kledger.FunctionFailed, match="expected bytes or None, got str"):
        await soon(subscriber.receive())


async def test_element_that_ends_the_process_of_a_function_is_left_out(
    topic: kledger.NamedTopic,
) -> None:
    subscriber = await topic.create_subscriber(group="g", filter=f"{FUNCTIONS}:ends_at_two")
    other = await topic.create_subscriber(group="h", filter=NAMED["filter"])
    await publish(topic, values(5))
    assert values(2) == await receive_values(subscriber, 2)
    with pytest.raises(kledger.FunctionFailed, match=r"channel 0, 2: .*ended with status 7"):
        await soon(subscriber.receive())
    assert values(2, first=3) == await receive_values(subscriber, 2)
    assert [b"1", b"3"] == await receive_values(other, 2)


async def test_topic_with_functions_completes_on_empty(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber(
        group="g", filter=NAMED["filter"], complete_on_empty=True
    )
    await publish(topic, [b"2", b"4"])
    assert await soon(subscriber.receive()) is None
    await publish(topic, [b"6", b"7"])
    assert [b"7"] == await receive_values(subscriber, 1)


async def test_function_that_raises_fails_its_receive_and_skips_the_element(
    topic: kledger.NamedTopic,
) -> None:
    subscriber = await topic.create_subscriber(deserializer=int)
    await publish(topic, [b"1", b"x", b"3"])
    assert [1] == [each.value for each in await subscriber.receive_batch(3)]
    with pytest.raises(ValueError, match="x"):
        await subscriber.receive()
    assert [3] == await receive_values(subscriber, 1)


async def test_kafka_records_and_native_messages_are_elements(
    client: kledger.Client, topic: kledger.NamedTopic
) -> None:
    subscriber = await topic.create_subscriber(group="g")
    ids = await send(client, "orders", [b"native"], key=b"k")
    element = (await receive(subscriber, 1))[0]
    assert b"native" == element.value
    assert (ids[0].partition, ids[0].offset) == (element.channel, element.position.offset)
    consumer = await client.subscribe("orders", "s", initial_position="earliest")
    await publish(topic, [b"published"], channel=2)
    messages = [await consumer.receive(timeout_ms=60_000) for _ in range(2)]
    assert {b"native", b"published"} == {each.value for each in messages}


async def test_topic_that_was_there_before_becomes_a_named_topic(client: kledger.Client) -> None:
    await client.create_topic("plain", partitions=2)
    await send(client, "plain", [b"old"])
    with pytest.raises(kledger.TopicNotFound):
        await client.find_named_topic("missing")
    with pytest.raises(kledger.TopicNotFound, match="no named topic"):
        await client.find_named_topic("plain")
    topic = await client.named_topic("plain")
    assert 2 == topic.channel_count
    subscriber = await topic.create_subscriber(group="g")
    await publish(topic, [b"new"])
    assert [b"new"] == await receive_values(subscriber, 1)


async def test_options_are_those_of_the_first_call(client: kledger.Client) -> None:
    first = await client.named_topic("fixed", channel_count=2, retain_values=True)
    assert (2, True) == (first.channel_count, first.options.retain_values)
    later = await client.named_topic("fixed")
    assert (2, True) == (later.channel_count, later.options.retain_values)
    with pytest.raises(kledger.IllegalArgument, match="page_bytes of named topic fixed"):
        await client.named_topic("fixed", page_bytes=5)
    with pytest.raises(
        kledger.IllegalArgument, match="channel_count of fixed: expected at least 2"
    ):
        await client.named_topic("fixed", channel_count=1)
    for name, value in (
        ("channel_count", 0),
        ("element_expiry_ms", 0),
        ("subscriber_timeout_ms", "5"),
        ("page_bytes", None),
        ("max_unconsumed_bytes", True),
    ):
        with pytest.raises(kledger.IllegalArgument, match=name):
            await client.named_topic("other", **{name: value})  # type: ignore[arg-type]
    assert ["fixed"] == await client.named_topics()


async def test_default_number_of_channels(client: kledger.Client) -> None:
    assert 17 == (await client.named_topic("default")).channel_count


async def test_short_way_to_a_subscriber(client: kledger.Client, topic: kledger.NamedTopic) -> None:
    subscriber = await client.create_subscriber("orders", group="g", complete_on_empty=True)
    assert ("orders", 3) == (subscriber.named_topic.name, subscriber.named_topic.channel_count)
    assert await subscriber.receive() is None
    made = await client.create_subscriber("made")
    assert (17, None) == (made.channel_count, made.group)


async def test_destroyed_topic_ends_its_subscribers(
    client: kledger.Client, topic: kledger.NamedTopic
) -> None:
    subscriber = await topic.create_subscriber(group="g")
    waiting = asyncio.create_task(subscriber.receive())
    await turn_loop()
    await topic.destroy()
    with pytest.raises(kledger.TopicNotFound):
        await soon(waiting)
    with pytest.raises(kledger.TopicNotFound):
        await topic.destroy()
    assert [] == await client.named_topics() == await client.topics()
    again = await client.named_topic("orders", channel_count=3)
    assert [] == await again.subscriber_groups()


async def test_expired_elements_are_gone_for_everyone(
    timed_client: kledger.Client, clock: ManualClock
) -> None:
    topic = await timed_client.named_topic("short", channel_count=1, element_expiry_ms=1_000)
    await topic.ensure_subscriber_group("g")
    await publish(topic, values(2))
    clock.advance(600)
    await publish(topic, values(2, first=2))
    clock.advance(400)
    subscriber = await topic.create_subscriber(group="g")
    assert 2 == await subscriber.get_remaining_messages()
    assert values(2, first=2) == await receive_values(subscriber, 2)
    clock.advance(1_000)
    assert {} == await subscriber.get_tails()
    assert 0 == await subscriber.get_remaining_messages()


async def test_prefetched_elements_that_expire_are_not_handed_out(
    timed_client: kledger.Client, clock: ManualClock
) -> None:
    topic = await timed_client.named_topic("short", channel_count=1, element_expiry_ms=1_000)
    subscriber = await topic.create_subscriber(group="g", complete_on_empty=True)
    await publish(topic, values(1))
    clock.advance(600)
    await publish(topic, values(2, first=1))
    fetched = subscriber._state._channels[0]
    await until(lambda: len(fetched.elements) == 3)
    clock.advance(399)
    assert values(1) == await receive_values(subscriber, 1)
    await subscriber.seek_to_head(0)
    await until(lambda: len(fetched.elements) == 3)
    clock.advance(1)
    assert values(1, first=1) == await receive_values(subscriber, 1)
    clock.advance(600)
    assert await soon(subscriber.receive()) is None
    await publish(topic, [b"new"])
    assert [b"new"] == await receive_values(subscriber, 1)


async def test_storage_follows_what_all_groups_have_committed(
    timed_client: kledger.Client, clock: ManualClock
) -> None:
    topic = await timed_client.named_topic("trimmed", channel_count=1)
    retaining = await timed_client.named_topic("kept", channel_count=1, retain_values=True)
    for each in (topic, retaining):
        await each.ensure_subscriber_group("slow")
        subscriber = await each.create_subscriber(group="g")
        await publish(each, values(4))
        await (await receive(subscriber, 4))[3].commit()

    async def start_of(name: str) -> int:
        return (await timed_client.topic_stats(name)).partitions[0].log_start_offset

    async def trimmed() -> int:
        clock.advance(5_000)
        await turn_loop(200)
        return await start_of("trimmed")

    assert 0 == await trimmed()
    await topic.destroy_subscriber_group("slow")
    while await trimmed() != 4:
        pass
    assert 0 == await start_of("kept")


async def test_without_a_group_nothing_stays(
    timed_client: kledger.Client, clock: ManualClock
) -> None:
    topic = await timed_client.named_topic("nobody", channel_count=1)
    await publish(topic, values(3))
    async with asyncio.timeout(SOON_MS / 1000):
        while (await timed_client.topic_stats("nobody")).partitions[0].log_start_offset < 3:
            clock.advance(5_000)
            await turn_loop(200)
    subscriber = await topic.create_subscriber(group="g", complete_on_empty=True)
    await subscriber.seek_to_head(0)
    assert await subscriber.receive() is None


async def test_log_of_a_topic_that_was_there_before_is_not_trimmed(
    timed_client: kledger.Client, clock: ManualClock
) -> None:
    """Opening a named topic over a topic of Kafka clients removes nothing of theirs."""
    await timed_client.create_topic("theirs")
    await send(timed_client, "theirs", values(3))
    mine = await timed_client.named_topic("mine", channel_count=1)
    await timed_client.named_topic("theirs")
    await publish(mine, values(3))
    while (await timed_client.topic_stats("mine")).partitions[0].log_start_offset != 3:
        clock.advance(5_000)
        await turn_loop(100)
    assert 0 == (await timed_client.topic_stats("theirs")).partitions[0].log_start_offset


async def test_leaving_the_client_closes_publishers_and_subscribers() -> None:
    closed: list[int] = []

    async def note() -> None:
        closed.append(1)

    async with kledger.embedded(None) as client:
        topic = await client.named_topic("t", channel_count=1)
        subscriber = await topic.create_subscriber(group="g")
        publisher = await topic.create_publisher()
        subscriber.on_close(note)
    assert [1] == closed
    assert not subscriber.is_active
    assert not publisher.is_active
