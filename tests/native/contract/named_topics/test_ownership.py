"""Who owns which channels: joining, leaving, silence, listeners, growth."""

import asyncio

import kledger
from kledger.runtime.manual_clock import ManualClock
from tests.native.contract.named_topics.words import (
    TIMEOUT_MS,
    Listener,
    is_empty,
    publish,
    receive,
    receive_values,
    soon,
    until,
)
from tests.native.contract.words import turn_loop, values


async def settled(topic: kledger.NamedTopic) -> None:
    """Wait until the server has got the polls that are due.

    Calls of one connection arrive in their order: the answer to a poll that has ended comes before
    that of the first call, and the next poll leaves before the third.
    """
    for _ in range(5):
        await turn_loop()  # an embedded server answers without a turn of the loop
        await topic.describe_groups()


async def test_channels_are_divided_in_the_order_of_ids(topic: kledger.NamedTopic) -> None:
    first = await topic.create_subscriber(group="g")
    assert (frozenset({0, 1, 2}), 3, "g") == (first.channels, first.channel_count, first.group)
    second = await topic.create_subscriber(group="g")
    assert first.id < second.id
    await until(lambda: first.channels == {0, 1})
    assert frozenset({2}) == second.channels
    assert (True, False) == (second.is_owner(2), second.is_owner(0))
    third = await topic.create_subscriber(group="g")
    surplus = await topic.create_subscriber(group="g")
    await until(lambda: [first.channels, second.channels] == [{0}, {1}])
    assert (frozenset({2}), frozenset()) == (third.channels, surplus.channels)
    await first.close()
    await until(lambda: [each.channels for each in (second, third, surplus)] == [{0}, {1}, {2}])


async def test_groups_and_anonymous_subscribers_have_all_channels_each(
    topic: kledger.NamedTopic,
) -> None:
    subscribers = [await topic.create_subscriber(group=each) for each in ("g", "h", None, None)]
    assert [frozenset({0, 1, 2})] * 4 == [each.channels for each in subscribers]
    assert [None, None] == [each.group for each in subscribers[2:]]
    await publish(topic, values(2))
    for each in subscribers:
        assert values(2) == await receive_values(each, 2)


async def test_listener_gets_revoked_channels_before_the_complete_set(
    topic: kledger.NamedTopic,
) -> None:
    listener, other = Listener(), Listener()
    first = await topic.create_subscriber(group="g", listeners=[listener])
    second = await topic.create_subscriber(group="g", listeners=[other])
    await until(lambda: len(listener.calls) >= 3)
    await second.close()
    await until(lambda: len(listener.calls) >= 4)
    await first.disconnect()
    await until(lambda: len(listener.calls) >= 5)
    assert [
        ("assigned", frozenset({0, 1, 2})),
        ("revoked", frozenset({2})),
        ("assigned", frozenset({0, 1})),
        ("assigned", frozenset({0, 1, 2})),
        ("lost", frozenset({0, 1, 2})),
    ] == listener.calls
    assert [("assigned", frozenset({2}))] == other.calls


async def test_listener_that_raises_changes_nothing(topic: kledger.NamedTopic) -> None:
    class Broken:
        def on_assigned(self, channels: frozenset[int]) -> None:
            raise ValueError(channels)

    listener = Listener()
    subscriber = await topic.create_subscriber(group="g", listeners=[object(), Broken(), listener])
    await until(lambda: listener.calls)
    await publish(topic, values(1))
    assert values(1) == await receive_values(subscriber, 1)


async def test_elements_of_a_revoked_channel_are_dropped_and_come_to_its_new_owner(
    topic: kledger.NamedTopic,
) -> None:
    """The first one has pre-fetched everything when it loses a channel."""
    first = await topic.create_subscriber(group="g")
    for channel in range(3):
        await publish(topic, [b"%d-%d" % (channel, each) for each in range(3)], channel=channel)
    await until(lambda: first._state.buffered_bytes > 9 * 200)
    second = await topic.create_subscriber(group="g")
    await until(lambda: first.channels == {0, 1})
    mine = await receive(first, 6)
    assert {0, 1} == {each.channel for each in mine}
    assert [b"2-0", b"2-1", b"2-2"] == await receive_values(second, 3)


async def test_late_commit_of_a_former_owner_is_refused_or_unowned(
    client: kledger.Client,
) -> None:
    for is_allowed, status in ((False, "rejected"), (True, "unowned")):
        topic = await client.named_topic(
            f"t-{is_allowed}", channel_count=2, allow_unowned_commits=is_allowed
        )
        first = await topic.create_subscriber(group="g")
        await publish(topic, values(2), channel=1)
        late = await receive(first, 2)
        second = await topic.create_subscriber(group="g")
        await until(lambda first=first: first.channels == {0})  # type: ignore[misc]
        result = await late[0].commit()
        assert (status, is_allowed) == (result.status, result.is_success)
        assert is_allowed == (result.error is None)
        assert is_allowed or isinstance(result.error, kledger.IllegalState)
        assert int(not is_allowed) + 1 == await second.get_remaining_messages(1)


async def test_silent_subscriber_loses_its_channels_to_the_others(
    timed: kledger.NamedTopic, clock: ManualClock
) -> None:
    """A frozen process: it still polls, but its application receives no more."""
    listener = Listener()
    frozen = await timed.create_subscriber(group="g", listeners=[listener])
    await publish(timed, values(3))
    held = await receive(frozen, 2)
    await held[0].commit()
    await turn_loop()
    clock.advance(TIMEOUT_MS // 2)
    alive = await timed.create_subscriber(group="g")
    receiving = asyncio.create_task(alive.receive_batch(1))
    await until(lambda: frozen.channels == {0, 1})
    for _ in range(3):
        await turn_loop(100)
        clock.advance(TIMEOUT_MS // 4)
    await until(lambda: alive.channels == {0, 1, 2, 3})
    batch = await soon(receiving)
    assert isinstance(batch, list)
    assert [b"1"] == [each.value for each in batch]
    await until(lambda: listener.calls[-1][0] == "lost")
    assert frozen.is_active
    refused = await held[1].commit()
    assert ("rejected", kledger.IllegalState) == (refused.status, type(refused.error))
    # Its next receive joins again; what was not committed comes to the owner of the channel.
    task = asyncio.create_task(frozen.receive())
    await until(lambda: frozen.channels == {0, 1})
    element = await soon(task)
    assert isinstance(element, kledger.Element)
    assert b"1" == element.value


async def test_waiting_receive_and_heartbeats_keep_a_subscriber_alive(
    timed: kledger.NamedTopic, clock: ManualClock
) -> None:
    listener = Listener()
    waiting = await timed.create_subscriber(group="waiting", listeners=[listener])
    beating = await timed.create_subscriber(group="beating", listeners=[listener])
    task = asyncio.create_task(waiting.receive())
    for _ in range(12):
        clock.advance(TIMEOUT_MS // 4)
        await beating.heartbeat()
        await settled(timed)
    assert frozenset(range(4)) == waiting.channels == beating.channels
    assert ["assigned"] * 2 == [name for name, _ in listener.calls], "they were never lost"
    await publish(timed, values(1))
    assert isinstance(await soon(task), kledger.Element)


async def test_timeout_counts_from_the_element_that_a_waiting_receive_has_got(
    timed: kledger.NamedTopic, clock: ManualClock
) -> None:
    """Else work that is shorter than the timeout could be too long, after a wait."""
    subscriber = await timed.create_subscriber(group="g")
    task = asyncio.create_task(subscriber.receive())
    await turn_loop(200)
    clock.advance(TIMEOUT_MS * 2 // 5)  # less than a poll waits
    await publish(timed, values(1))
    element = await soon(task)
    assert isinstance(element, kledger.Element)
    await turn_loop(200)
    clock.advance(TIMEOUT_MS * 4 // 5)
    await turn_loop(200)
    assert "committed" == (await element.commit()).status


async def test_receives_from_what_is_prefetched_keep_a_subscriber_alive(
    timed: kledger.NamedTopic, clock: ManualClock
) -> None:
    subscriber = await timed.create_subscriber(group="g")
    await publish(timed, values(12))
    await until(lambda: subscriber._state.buffered_bytes > 12 * 200)
    found = []
    for _ in range(12):
        found += await receive_values(subscriber, 1)
        await settled(timed)
        clock.advance(TIMEOUT_MS // 3)
    assert values(12) == found  # nothing came twice: the channels were never lost


async def test_receive_just_before_the_timeout_counts(
    timed: kledger.NamedTopic, clock: ManualClock
) -> None:
    """The poll under way says nothing of it, and the next one would come too late."""
    listener = Listener()
    subscriber = await timed.create_subscriber(group="g", listeners=[listener])
    await publish(timed, values(2))
    await receive_values(subscriber, 1)
    await until(lambda: subscriber._state.buffered_bytes > 200)
    for _ in range(9):
        await settled(timed)
        clock.advance(TIMEOUT_MS // 10)
    await settled(timed)
    assert [b"1"] == await receive_values(subscriber, 1)
    await settled(timed)
    clock.advance(TIMEOUT_MS // 5)
    await settled(timed)
    assert frozenset(range(4)) == subscriber.channels
    assert ["assigned"] == [name for name, _ in listener.calls]


async def test_anonymous_subscriber_never_times_out_and_leaves_nothing(
    timed_client: kledger.Client, timed: kledger.NamedTopic, clock: ManualClock
) -> None:
    subscriber = await timed.create_subscriber()
    for _ in range(10):
        await turn_loop(200)
        clock.advance(TIMEOUT_MS)
    await turn_loop(200)
    await publish(timed, values(1))
    assert values(1) == await receive_values(subscriber, 1)
    broker = timed_client._open_services().broker
    assert 1 == len(await broker.subscriber_groups("timed"))
    await subscriber.close()
    assert [] == await broker.subscriber_groups("timed")


async def test_disconnected_anonymous_subscriber_leaves_nothing_when_it_is_closed(
    topic: kledger.NamedTopic,
) -> None:
    subscriber = await topic.create_subscriber()
    await subscriber.disconnect()
    assert 1 == len(await topic.describe_groups())
    await subscriber.close()
    assert [] == await topic.describe_groups()


async def test_added_channels_are_allocated_and_read_from_their_beginning(
    client: kledger.Client, topic: kledger.NamedTopic
) -> None:
    subscriber = await topic.create_subscriber(group="g")
    await client.create_partitions("orders", 5)
    grown = await client.named_topic("orders")
    assert 5 == grown.channel_count
    await publish(grown, [b"new"], channel=4)
    assert [b"new"] == await receive_values(subscriber, 1)
    assert (frozenset(range(5)), 5) == (subscriber.channels, subscriber.channel_count)
    again = await client.named_topic("orders", channel_count=6)
    assert 6 == again.channel_count
    await until(lambda: subscriber.channel_count == 6)
    assert await is_empty(again, "g") is False
