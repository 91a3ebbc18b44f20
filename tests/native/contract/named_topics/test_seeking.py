"""Seeks: where they lead, what they do to commits and to what is under way."""

import asyncio

import pytest

import kledger
from kledger.runtime.manual_clock import ManualClock
from tests.native.contract.named_topics.words import (
    publish,
    receive,
    receive_values,
    soon,
    until,
)
from tests.native.contract.words import turn_loop, values

Position = kledger.ChannelPosition


async def test_next_element_is_the_one_behind_the_position(retaining: kledger.NamedTopic) -> None:
    subscriber = await retaining.create_subscriber(group="g")
    positions = await publish(retaining, values(6))
    assert positions[3] == await subscriber.seek(0, positions[3])
    assert [b"4"] == await receive_values(subscriber, 1)
    assert positions[0] == await subscriber.seek(0, positions[0])
    assert values(5, first=1) == await receive_values(subscriber, 5)
    assert positions[5] == await subscriber.get_position(0)


async def test_seek_is_clamped_to_head_and_tail(retaining: kledger.NamedTopic) -> None:
    subscriber = await retaining.create_subscriber(group="g")
    positions = await publish(retaining, values(3))
    assert positions[2] == await subscriber.seek(0, Position(0, 1_000))
    waiting = asyncio.create_task(subscriber.receive())
    await publish(retaining, [b"next"])
    element = await soon(waiting)
    assert isinstance(element, kledger.Element)
    assert b"next" == element.value
    before = await subscriber.seek(0, Position(0, -1))
    assert before < positions[0]
    assert values(3) == await receive_values(subscriber, 3)
    assert before == await subscriber.seek(0, before)
    assert [b"0"] == await receive_values(subscriber, 1)


async def test_forwards_the_commit_stays_and_backwards_it_moves_along(
    retaining: kledger.NamedTopic,
) -> None:
    subscriber = await retaining.create_subscriber(group="g")
    positions = await publish(retaining, values(8))
    await (await receive(subscriber, 4))[3].commit()
    await subscriber.seek(0, positions[6])
    assert positions[3] == await subscriber.get_last_committed(0)
    await subscriber.disconnect()
    assert [b"4"] == await receive_values(subscriber, 1)
    # The position that a seek returns can be committed though its element was never received.
    reached = await subscriber.seek(0, positions[6])
    assert "committed" == (await subscriber.commit(0, reached)).status
    await subscriber.seek(0, positions[1])
    assert positions[1] == await subscriber.get_last_committed(0)
    await subscriber.disconnect()
    assert [b"2"] == await receive_values(subscriber, 1)


async def test_seek_to_right_before_the_commit_rolls_one_element_back(
    retaining: kledger.NamedTopic,
) -> None:
    """The real server loses that element: it compares with the next offset, and skips forwards."""
    subscriber = await retaining.create_subscriber(group="g")
    positions = await publish(retaining, values(5))
    await (await receive(subscriber, 3))[2].commit()
    assert positions[1] == await subscriber.seek(0, positions[1])
    assert positions[1] == await subscriber.get_last_committed(0)
    assert values(3, first=2) == await receive_values(subscriber, 3)


async def test_element_that_was_read_before_a_seek_back_is_unread_after_it(
    retaining: kledger.NamedTopic,
) -> None:
    subscriber = await retaining.create_subscriber(group="g")
    positions = await publish(retaining, values(3))
    found = await receive(subscriber, 3)
    await subscriber.seek(0, positions[0])
    assert "rejected" == (await found[2].commit()).status
    await receive(subscriber, 2)
    assert "committed" == (await found[2].commit()).status


async def test_head_removes_commits_and_tail_waits_for_what_is_published(
    retaining: kledger.NamedTopic,
) -> None:
    subscriber = await retaining.create_subscriber(group="g")
    positions = await publish(retaining, values(3))
    await publish(retaining, values(2), channel=1)
    await (await receive(subscriber, 5))[4].commit()
    for element in await _all(subscriber):
        await element.commit()
    assert positions[0] == (await subscriber.seek_to_head(0))[0]
    assert 0 not in await subscriber.get_last_committed()
    assert 3 == await subscriber.get_remaining_messages(0)
    assert positions[0] == await subscriber.get_head(0)
    assert values(3) == await receive_values(subscriber, 3)
    await subscriber.seek_to_head(0)
    assert {0: positions[2]} == await subscriber.seek_to_tail(0)
    assert 3 == await subscriber.get_remaining_messages(0)
    assert {0: positions[2]} == await subscriber.seek_to_tail_and_commit(0)
    assert 0 == await subscriber.get_remaining_messages(0)
    assert positions[2] == await subscriber.get_last_committed(0)
    await publish(retaining, [b"later"])
    assert [b"later"] == await receive_values(subscriber, 1)


async def _all(subscriber: kledger.Subscriber) -> list[kledger.Element]:
    """Return the elements of all channels again."""
    await subscriber.seek_to_head(*sorted(subscriber.channels))
    return await receive(subscriber, await subscriber.get_remaining_messages())


async def test_seek_and_commit_moves_the_commit_in_either_direction(
    retaining: kledger.NamedTopic,
) -> None:
    subscriber = await retaining.create_subscriber(group="g")
    positions = await publish(retaining, values(6))
    assert positions[3] == await subscriber.seek_and_commit(0, positions[3])
    assert positions[3] == await subscriber.get_last_committed(0)
    found = await subscriber.seek_and_commit_all({0: positions[1], 1: Position(1, -1)})
    assert positions[1] == found[0]
    assert positions[1] == await subscriber.get_last_committed(0)
    await subscriber.disconnect()
    assert [b"2"] == await receive_values(subscriber, 1)


async def test_committed_by_all_cannot_be_sought_to_again(topic: kledger.NamedTopic) -> None:
    """Exactly, though the log still has it; another group that has not committed keeps it."""
    subscriber = await topic.create_subscriber(group="g")
    other = await topic.create_subscriber(group="h")
    positions = await publish(topic, values(6))
    await (await receive(subscriber, 5))[4].commit()
    await (await receive(other, 2))[1].commit()
    assert positions[2] == (await subscriber.seek_to_head(0))[0]
    assert values(4, first=2) == await receive_values(subscriber, 4)
    assert positions[1] == await subscriber.seek(0, Position(0, 0))
    await topic.destroy_subscriber_group("h")
    await (await receive(subscriber, 3))[2].commit()
    assert positions[5] == (await subscriber.seek_to_head(0))[0]
    assert [b"5"] == await receive_values(subscriber, 1)


@pytest.mark.parametrize("offset_ms", [-1, 0, 1])
async def test_time_leads_to_the_first_element_that_is_newer(
    timed_client: kledger.Client, clock: ManualClock, offset_ms: int
) -> None:
    """Strictly newer: elements of equal times are all skipped, missing times skip none."""
    topic = await timed_client.named_topic("times", channel_count=1, retain_values=True)
    subscriber = await topic.create_subscriber(group="g")
    positions = []
    for each in ([b"0"], [b"1"], [b"2"]):
        positions += await publish(topic, [*each, each[0] + b"b"])
        clock.advance(10)
    times = [each.timestamp_ms for each in await receive(subscriber, 6)]
    assert [times[0]] * 2 + [times[0] + 10] * 2 + [times[0] + 20] * 2 == times
    expected = 2 if offset_ms < 0 else 4
    found = await subscriber.seek(0, times[2] + offset_ms)
    assert positions[expected - 1] == found
    assert [b"%d" % (expected // 2)] == await receive_values(subscriber, 1)
    assert positions[5] == await subscriber.seek(0, times[5])
    before = await subscriber.seek_and_commit(0, times[0] - 1)
    assert before < positions[0]
    assert [b"0"] == await receive_values(subscriber, 1)


async def test_seek_in_an_empty_channel_succeeds(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber(group="g")
    zero = Position(0, -1)
    assert zero == await subscriber.seek(0, Position(0, 7))
    assert zero == await subscriber.seek(0, 5)
    assert {0: zero} == await subscriber.seek_to_head(0)
    assert {0: zero} == await subscriber.seek_to_tail(0)
    assert {0: zero} == await subscriber.seek_to_tail_and_commit(0)
    assert {} == await subscriber.get_heads() == await subscriber.get_tails()
    assert await subscriber.get_head(0) is None
    assert await subscriber.get_tail(0) is None
    assert await subscriber.get_position(0) is None
    await publish(topic, values(1))
    assert values(1) == await receive_values(subscriber, 1)


async def test_seek_of_a_channel_that_is_not_owned_moves_nothing(
    retaining: kledger.NamedTopic,
) -> None:
    first = await retaining.create_subscriber(group="g")
    second = await retaining.create_subscriber(group="g")
    await until(lambda: first.channels == {0, 1})
    positions = await publish(retaining, values(3))
    await receive(first, 3)
    for seek in (
        lambda: first.seek(2, 5),
        lambda: first.seek_all({0: positions[0], 2: Position(2, 0)}),
        lambda: first.seek_to_head(0, 2),
        lambda: first.seek_to_tail(0, 9),
        lambda: first.seek_to_tail_and_commit(2, 0),
        lambda: first.seek_to_head(-1),
    ):
        with pytest.raises(kledger.IllegalState, match="does not own"):
            await seek()
    assert positions[2] == await first.get_position(0)
    assert {} == await first.get_last_committed()
    assert frozenset({2}) == second.channels


@pytest.mark.parametrize("target", [None, "0", 1.5, True, Position(1, 0)], ids=repr)
async def test_target_of_another_kind_moves_nothing(
    retaining: kledger.NamedTopic, target: object
) -> None:
    subscriber = await retaining.create_subscriber(group="g")
    positions = await publish(retaining, values(2))
    await receive(subscriber, 2)
    for seek in (subscriber.seek, subscriber.seek_and_commit):
        with pytest.raises(kledger.IllegalArgument):
            await seek(0, target)  # type: ignore[arg-type]
    assert positions[1] == await subscriber.get_position(0)


async def test_receives_that_wait_are_served_behind_a_seek(retaining: kledger.NamedTopic) -> None:
    subscriber = await retaining.create_subscriber(group="g")
    positions = await publish(retaining, values(4))
    await receive(subscriber, 4)
    waiting = [asyncio.create_task(subscriber.receive()) for _ in range(2)]
    await turn_loop()
    seek = asyncio.create_task(subscriber.seek(0, positions[1]))
    found = await soon(asyncio.gather(*waiting))
    assert isinstance(found, list)
    assert [b"2", b"3"] == [each.value for each in found]
    assert positions[1] == await seek


async def test_seeks_and_receives_at_once_never_mix(retaining: kledger.NamedTopic) -> None:
    """After each seek the elements behind its position come, whatever was pre-fetched."""
    subscriber = await retaining.create_subscriber(group="g")
    positions = await publish(retaining, values(30))
    for target in (20, 3, 11, 3, 25, 0):
        await asyncio.gather(
            subscriber.seek(0, positions[7]), subscriber.seek(0, positions[target])
        )
        assert values(3, first=target + 1) == await receive_values(subscriber, 3)


async def test_heads_are_what_comes_next_and_tails_the_last(retaining: kledger.NamedTopic) -> None:
    subscriber = await retaining.create_subscriber(group="g")
    positions = await publish(retaining, values(3))
    assert {0: positions[0]} == await subscriber.get_heads()
    await receive(subscriber, 2)
    assert positions[2] == await subscriber.get_head(0)
    await receive(subscriber, 1)
    assert {} == await subscriber.get_heads()
    assert {0: positions[2]} == await subscriber.get_tails()
    assert positions[2] == await subscriber.get_tail(0)
