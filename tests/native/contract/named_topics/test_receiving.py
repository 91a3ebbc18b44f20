"""Receiving: order, batches, empty topics, cancelling, closing, limits."""

import asyncio
from dataclasses import replace

import pytest

import kledger
from tests.native.contract.named_topics.words import (
    is_empty,
    publish,
    receive,
    receive_values,
    soon,
    until,
)
from tests.native.contract.words import values


async def test_elements_of_a_channel_come_in_order_with_their_coordinates(
    topic: kledger.NamedTopic,
) -> None:
    subscriber = await topic.create_subscriber()
    positions = await publish(topic, values(3), channel=2)
    found = await receive(subscriber, 3)
    assert values(3) == [each.value for each in found]
    assert values(3) == [each.binary_value for each in found]
    assert positions == [each.position for each in found]
    assert positions == sorted(positions)
    assert {2} == {each.channel for each in found}
    assert all(each.timestamp_ms > 0 for each in found)


async def test_receives_complete_in_the_order_of_their_calls(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber(group="g")
    order: list[int] = []

    async def receive_one(number: int) -> object:
        element = await subscriber.receive()
        order.append(number)
        assert element is not None
        return element.value

    tasks = [asyncio.create_task(receive_one(number)) for number in range(20)]
    await publish(topic, values(20))
    assert values(20) == await soon(asyncio.gather(*tasks))
    assert list(range(20)) == order


async def test_batch_has_what_is_there_up_to_its_size(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber(group="g", complete_on_empty=True)
    await publish(topic, values(5))
    found: list[object] = []
    while batch := await subscriber.receive_batch(3):
        assert len(batch) <= 3
        found += [each.value for each in batch]
    assert values(5) == found
    with pytest.raises(kledger.IllegalArgument, match="count"):
        await subscriber.receive_batch(0)


async def test_receive_on_an_empty_topic_ends_or_waits(topic: kledger.NamedTopic) -> None:
    completing = await topic.create_subscriber(complete_on_empty=True)
    waiting = await topic.create_subscriber()
    assert await soon(completing.receive()) is None
    assert [] == await soon(completing.receive_batch(5))
    pending = asyncio.create_task(waiting.receive())
    await publish(topic, [b"a"])
    element = await soon(pending)
    assert isinstance(element, kledger.Element)
    assert b"a" == element.value
    # What was published since is not missed by the one that completes on empty.
    assert [b"a"] == await receive_values(completing, 1)


async def test_receives_that_wait_together_all_complete_on_empty(
    topic: kledger.NamedTopic,
) -> None:
    subscriber = await topic.create_subscriber(complete_on_empty=True)
    assert [None] * 5 == await soon(asyncio.gather(*(subscriber.receive() for _ in range(5))))


async def test_element_of_a_cancelled_receive_goes_to_the_next_one(
    topic: kledger.NamedTopic,
) -> None:
    subscriber = await topic.create_subscriber()
    first = asyncio.create_task(subscriber.receive())
    second = asyncio.create_task(subscriber.receive())
    await asyncio.sleep(0)
    first.cancel()
    await publish(topic, values(1))
    element = await soon(second)
    assert isinstance(element, kledger.Element)
    assert b"0" == element.value
    assert first.cancelled()


async def test_receive_that_is_cancelled_when_it_has_its_element_puts_it_back(
    topic: kledger.NamedTopic,
) -> None:
    subscriber = await topic.create_subscriber()
    await publish(topic, values(2))
    await receive(subscriber, 1)
    await subscriber.seek_to_head(0)
    task = asyncio.create_task(subscriber.receive())
    request = None
    while request is None or not request.outcome.done():
        await asyncio.sleep(0)
        request = request or subscriber._requests.oldest
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert values(2) == await receive_values(subscriber, 2)


async def test_receive_that_is_cancelled_with_its_element_passes_it_to_the_next_one(
    topic: kledger.NamedTopic,
) -> None:
    """Both were served at once: else the second would get its element before the first one's."""
    subscriber = await topic.create_subscriber(group="g")
    await publish(topic, values(2))
    await receive(subscriber, 2)
    await subscriber.seek_to_head(0)
    first, second = (asyncio.create_task(subscriber.receive()) for _ in range(2))
    await asyncio.sleep(0)
    oldest = subscriber._requests.oldest
    assert oldest is not None
    await until(oldest.outcome.done)
    first.cancel()
    element = await soon(second)
    assert isinstance(element, kledger.Element)
    assert b"0" == element.value
    assert first.cancelled()
    assert "committed" == (await element.commit()).status
    assert [b"1"] == await receive_values(subscriber, 1)


async def test_no_channel_starves(client: kledger.Client) -> None:
    """A channel with many elements does not hold up those with few."""
    topic = await client.named_topic("many", channel_count=17)
    subscriber = await topic.create_subscriber()
    await publish(topic, values(200), channel=0)
    for channel in range(1, 17):
        await publish(topic, [b"x"], channel=channel)
    # All is pre-fetched: the elements of the other channels come within two rounds.
    await until(lambda: subscriber._state.buffered_bytes > 215 * 200)
    found = await receive(subscriber, 40)
    assert set(range(17)) == {each.channel for each in found}


async def test_prefetching_has_a_limit_of_bytes(
    client: kledger.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await client.named_topic("big", channel_count=1, page_bytes=10_000)
    limit = 50_000
    subscriber = await topic.create_subscriber()
    polling = subscriber._polling
    options = polling._options
    monkeypatch.setattr(polling, "_options", replace(options, prefetched_bytes_max=limit))
    async with await topic.create_publisher() as publisher:
        for number in range(100):
            await publisher.publish(b"%4d" % number + bytes(3_000))
    found = []
    for _ in range(100):
        element = await soon(subscriber.receive())
        assert isinstance(element, kledger.Element)
        found.append(int(element.value[:4]))
        assert subscriber._state.buffered_bytes <= limit + 10_000 + 4_000
    assert list(range(100)) == found


async def test_closing_cancels_receives_and_ends_everything(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber(group="g")
    closed: list[str] = []

    def broken() -> None:
        raise ValueError(closed)

    subscriber.on_close(broken)
    subscriber.on_close(lambda: closed.append("a"))
    pending = asyncio.create_task(subscriber.receive())
    await asyncio.sleep(0)
    await subscriber.close()
    await subscriber.close()
    assert ["a"] == closed
    with pytest.raises(asyncio.CancelledError):
        await pending
    assert not subscriber.is_active
    for call in (
        subscriber.receive,
        lambda: subscriber.receive_batch(1),
        lambda: subscriber.commit(0, kledger.ChannelPosition(0, 0)),
        lambda: subscriber.commit_all({}),
        lambda: subscriber.seek(0, 5),
        lambda: subscriber.seek_to_head(0),
        subscriber.get_heads,
        subscriber.get_remaining_messages,
        subscriber.heartbeat,
        subscriber.disconnect,
    ):
        with pytest.raises(kledger.IllegalState, match="closed"):
            await call()


async def test_close_action_that_raises_stops_no_other(
    topic: kledger.NamedTopic, caplog: pytest.LogCaptureFixture
) -> None:
    subscriber = await topic.create_subscriber(group="g")
    closed: list[str] = []

    async def raising() -> None:
        raise ValueError("the action's own")

    async def closing() -> None:
        closed.append("b")

    subscriber.on_close(raising)
    subscriber.on_close(closing)
    await subscriber.close()
    assert ["b"] == closed
    assert "the action's own" in caplog.text


async def test_uncommitted_elements_come_again_to_the_next_subscriber(
    topic: kledger.NamedTopic,
) -> None:
    async with await topic.create_subscriber(group="g") as first:
        await publish(topic, values(5))
        found = await receive(first, 4)
        assert "committed" == (await found[1].commit()).status
    async with await topic.create_subscriber(group="g") as second:
        assert values(3, first=2) == await receive_values(second, 3)


async def test_disconnected_subscriber_goes_on_behind_its_commit(
    topic: kledger.NamedTopic,
) -> None:
    await topic.ensure_subscriber_group("g")
    for group in ("g", None):
        subscriber = await topic.create_subscriber(group=group)
        await publish(topic, values(3))
        first = await receive(subscriber, 2)
        await first[0].commit()
        await subscriber.disconnect()
        assert frozenset() == subscriber.channels
        assert subscriber.is_active
        assert values(2, first=1) == await receive_values(subscriber, 2)
        await subscriber.close()
        if group:
            assert not await is_empty(topic, group)
            await topic.destroy_subscriber_group(group)


async def test_requests_of_one_subscriber_have_a_limit(topic: kledger.NamedTopic) -> None:
    subscriber = await topic.create_subscriber()
    subscriber.flow_control.backlog_max = 2
    tasks = [asyncio.create_task(subscriber.receive()) for _ in range(5)]
    await until(lambda: subscriber.flow_control.backlog == 2)
    assert subscriber.flow_control.is_backlogged
    await publish(topic, values(5))
    found = await soon(asyncio.gather(*tasks))
    assert values(5) == [each.value for each in found]  # type: ignore[attr-defined]
    await subscriber.flow_control.drain()
    assert 0 == subscriber.flow_control.backlog
