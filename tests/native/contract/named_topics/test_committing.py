"""Commits: the statuses, maps, what survives."""

import asyncio

import pytest

import kledger
from tests.native.contract.named_topics.words import publish, receive, receive_values, until
from tests.native.contract.words import values


async def test_commit_covers_everything_before_it(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber(group="g")
    positions = await publish(topic, values(5))
    found = await receive(subscriber, 4)
    assert 5 == await subscriber.get_remaining_messages()
    result = await found[2].commit()
    assert kledger.CommitResult(0, positions[2], "committed") == result
    assert result.is_success
    assert 2 == await subscriber.get_remaining_messages()
    assert {0: positions[2]} == await subscriber.get_last_committed()
    assert positions[2] == await subscriber.get_last_committed(0)
    assert await subscriber.get_last_committed(1) is None


async def test_each_status(topic: kledger.NamedTopic) -> None:
    await publish(topic, values(3))  # nobody gets these
    subscriber = await topic.create_subscriber(group="g")
    positions = await publish(topic, values(3))
    early = kledger.ChannelPosition(0, 1)
    assert "nothing_to_commit" == (await subscriber.commit(0, early)).status
    await receive(subscriber, 2)
    assert "committed" == (await subscriber.commit(0, positions[0])).status
    for position in (positions[0], early, kledger.ChannelPosition(0, -1)):
        result = await subscriber.commit(0, position)
        assert ("already_committed", True) == (result.status, result.is_success)
    unread = await subscriber.commit(0, positions[2])
    assert ("rejected", False) == (unread.status, unread.is_success)
    assert isinstance(unread.error, kledger.IllegalArgument)
    assert "unread" in str(unread.error)
    for channel in (3, -1, 1 << 40):
        nowhere = await subscriber.commit(channel, kledger.ChannelPosition(channel, 0))
        assert isinstance(nowhere.error, kledger.IllegalState), channel


@pytest.mark.parametrize(
    "position", [None, 5, b"0", "0:0", kledger.ChannelPosition(1, 0)], ids=repr
)
async def test_position_of_another_kind_or_channel_is_refused(
    topic: kledger.NamedTopic, position: object
) -> None:
    subscriber = await topic.create_subscriber(group="g")
    await publish(topic, values(1))
    await receive(subscriber, 1)
    result = await subscriber.commit(0, position)  # type: ignore[arg-type]
    assert "rejected" == result.status
    assert isinstance(result.error, kledger.IllegalArgument)
    assert result.position is position
    assert 1 == await subscriber.get_remaining_messages()


async def test_prefetched_element_is_unread(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber(group="g")
    positions = await publish(topic, values(2))
    await until(lambda: subscriber._state.buffered_bytes > 2 * 200)
    assert "rejected" == (await subscriber.commit(0, positions[0])).status
    await receive(subscriber, 1)
    assert "committed" == (await subscriber.commit(0, positions[0])).status


async def test_map_of_commits_answers_for_each_channel(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber(group="g")
    positions = {each: (await publish(topic, values(2), channel=each))[0] for each in range(3)}
    await receive(subscriber, 6)
    results = await subscriber.commit_all(
        {0: positions[0], 1: positions[0], 2: positions[2], 9: kledger.ChannelPosition(9, 0)}
    )
    assert {0: "committed", 1: "rejected", 2: "committed", 9: "rejected"} == {
        channel: each.status for channel, each in results.items()
    }
    assert {0: positions[0], 2: positions[2]} == await subscriber.get_last_committed()
    assert {} == await subscriber.commit_all({})


async def test_commits_that_come_together_are_decided_in_their_order(
    topic: kledger.NamedTopic,
) -> None:
    subscriber = await topic.create_subscriber(group="g")
    positions = await publish(topic, values(4))
    found = await receive(subscriber, 4)
    results = await asyncio.gather(*(each.commit() for each in [*found, *found]))
    assert ["committed"] * 4 + ["already_committed"] * 4 == [each.status for each in results]
    assert {0: positions[3]} == await subscriber.get_last_committed()


async def test_remaining_counts_behind_the_commit_of_owned_channels(
    client: kledger.Client,
) -> None:
    topic = await client.named_topic("counted", channel_count=4)
    first = await topic.create_subscriber(group="g")
    for channel in range(4):
        await publish(topic, values(25), channel=channel)
    assert 100 == await first.get_remaining_messages()
    await receive(first, 10)
    await first.seek_to_tail(0)
    assert (100, 25) == (
        await first.get_remaining_messages(),
        await first.get_remaining_messages(0),
    )
    second = await topic.create_subscriber(group="g")
    await until(lambda: first.channels == {0, 1})
    counts = [await each.get_remaining_messages() for each in (first, second)]
    assert [50, 50] == counts
    assert (0, 25) == (
        await first.get_remaining_messages(3),
        await second.get_remaining_messages(3, 0),
    )
    await second.seek_to_tail_and_commit(2, 3)
    assert 0 == await second.get_remaining_messages()
    await second.close()
    await until(lambda: len(first.channels) == 4)
    assert 50 == await first.get_remaining_messages()


async def test_commits_of_one_group_do_not_touch_another(topic: kledger.NamedTopic) -> None:
    first = await topic.create_subscriber(group="g")
    second = await topic.create_subscriber(group="h")
    await publish(topic, values(3))
    await (await receive(first, 3))[2].commit()
    assert (0, 3) == (
        await first.get_remaining_messages(),
        await second.get_remaining_messages(),
    )
    assert values(3) == await receive_values(second, 3)


async def test_commit_of_an_anonymous_subscriber_holds_over_a_disconnect(
    topic: kledger.NamedTopic,
) -> None:
    subscriber = await topic.create_subscriber()
    await publish(topic, values(3))
    await (await receive(subscriber, 3))[1].commit()
    await subscriber.disconnect()
    assert [b"2"] == await receive_values(subscriber, 1)
