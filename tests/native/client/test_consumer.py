"""A consumer over its partitions; its guarantees are tested by the contract."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kledger.ledger import Position
from kledger.native.broker import EARLIEST, ConsumerRequest, TopicInfo
from kledger.native.client.consumer import BATCH_LINGER_MS, RECEIVES_WITHOUT_YIELD_MAX, Consumer
from kledger.native.client.producer import Producer
from kledger.native.client.subscribe_options import SubscribeOptions
from kledger.native.errors import (
    AlreadyClosed,
    ConsumerBusy,
    SubscriptionNotFound,
    Timeout,
    TopicNotFound,
    Unavailable,
    Unreadable,
)
from kledger.native.message_id import MessageId
from kledger.subscriptions.model import Acknowledgement, SubscriptionType
from tests.native.client_builders import Rig, damaged, delivery, long_delivery, rig, ticks
from tests.native.recording_broker import RecordingLink


async def no_producer(_: str) -> Producer:
    raise AssertionError("no dead letters here")


@asynccontextmanager
async def consuming(
    *, partitions: int = 1, type_: SubscriptionType = SubscriptionType.SHARED, **options: Any
) -> AsyncIterator[tuple[Rig, Consumer]]:
    async with rig() as rig_:
        consumer = Consumer(
            rig_.services,
            TopicInfo("orders", partitions),
            SubscribeOptions(subscription="s", type=type_, start="latest", name="c", **options),
            create_producer=no_producer,
            on_closed=lambda _: None,
        )
        await consumer.open()
        yield rig_, consumer
        await consumer.close()


def requests(rig_: Rig) -> list[ConsumerRequest]:
    return [call[1] for call in rig_.broker.calls if call[0] == "open_consumer"]


async def test_time_limit_is_kept_by_the_clock() -> None:
    async with consuming() as (rig_, consumer):
        waiting = asyncio.ensure_future(consumer.receive(timeout_ms=1_000))
        await rig_.pass_ms(999)
        assert not waiting.done()
        await rig_.pass_ms(1)
        with pytest.raises(Timeout, match="within 1000 ms"):
            await waiting


async def test_waiting_receivers_get_one_message_each() -> None:
    async with consuming() as (rig_, consumer):
        waiting = [asyncio.ensure_future(consumer.receive()) for _ in range(3)]
        await ticks()
        rig_.broker.links[0].deliver([delivery(1, b"a", b"b")])
        await ticks()
        assert 2 == sum(each.done() for each in waiting)
        rig_.broker.links[0].deliver([delivery(2, b"c")])
        assert {b"a", b"b", b"c"} == {each.value for each in await asyncio.gather(*waiting)}


async def test_long_run_of_receives_yields_to_the_event_loop() -> None:
    async with consuming(receiver_queue_size=3 * RECEIVES_WITHOUT_YIELD_MAX) as (rig_, consumer):
        rig_.broker.links[0].deliver([delivery(1, *[b"v"] * 2 * RECEIVES_WITHOUT_YIELD_MAX)])
        seen: list[int] = []

        async def look() -> None:
            seen.append(consumer.queued)

        task = asyncio.ensure_future(look())
        for _ in range(2 * RECEIVES_WITHOUT_YIELD_MAX):
            await consumer.receive()
        assert task.done()
        assert seen[0] > RECEIVES_WITHOUT_YIELD_MAX // 2


async def test_damaged_batch_is_raised_once_and_skipped() -> None:
    async with consuming() as (rig_, consumer):
        rig_.broker.links[0].deliver([damaged(1), delivery(2, b"v")])
        with pytest.raises(Unreadable) as caught:
            await consumer.receive()
        assert b"v" == (await consumer.receive()).value
        assert isinstance(caught.value.id, MessageId)
        await consumer.acknowledge(caught.value.id)
        assert Position(5, 1) == rig_.broker.calls[-1][2].position


async def test_damage_behind_good_messages_loses_none() -> None:
    async with consuming() as (rig_, consumer):
        rig_.broker.links[0].deliver([delivery(1, b"a"), damaged(2), delivery(3, b"b")])
        assert [b"a"] == [each.value for each in await consumer.batch_receive(5, timeout_ms=0)]
        with pytest.raises(Unreadable):
            await consumer.batch_receive(5, timeout_ms=0)
        assert [b"b"] == [each.value for each in await consumer.batch_receive(5, timeout_ms=0)]


async def test_time_limit_is_not_for_a_batch_that_is_being_decoded() -> None:
    """The message is queued already, so a time limit of 0 returns it."""
    async with consuming() as (rig_, consumer):
        rig_.broker.links[0].deliver([long_delivery(1, count=2_000), delivery(2, b"behind")])
        assert b"0" == (await consumer.receive(timeout_ms=0)).value
        found: list[bytes | None] = []
        while len(found) < 2_000:
            found += [each.value for each in await consumer.batch_receive(5_000, timeout_ms=0)]
        assert [*(b"%d" % each for each in range(1, 2_000)), b"behind"] == found
        with pytest.raises(Timeout):
            await consumer.receive(timeout_ms=0)


async def test_cancelled_receive_of_a_long_batch_loses_nothing() -> None:
    async with consuming() as (rig_, consumer):
        rig_.broker.links[0].deliver([long_delivery(1, count=2_000)])
        waiting = asyncio.ensure_future(consumer.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await ticks()
        assert b"0" == (await consumer.receive()).value


async def test_redelivery_during_the_decoding_lets_the_time_limit_count_again() -> None:
    async with consuming() as (rig_, consumer):
        rig_.broker.links[0].deliver([long_delivery(1, count=2_000)])
        waiting = asyncio.ensure_future(consumer.receive(timeout_ms=0))
        await asyncio.sleep(0)
        assert not waiting.done()
        await consumer.redeliver_unacknowledged()
        with pytest.raises(Timeout):
            await waiting
        assert ("c", "permits", 2_000) in rig_.broker.calls
        assert 0 == consumer.queued


async def test_closing_ends_receivers_of_a_long_batch() -> None:
    async with consuming() as (rig_, consumer):
        rig_.broker.links[0].deliver([long_delivery(1, count=2_000)])
        waiting = asyncio.ensure_future(consumer.receive())
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(AlreadyClosed):
            await waiting


async def test_batch_without_a_time_limit_lingers_a_moment() -> None:
    async with consuming() as (rig_, consumer):
        waiting = asyncio.ensure_future(consumer.batch_receive(5))
        await rig_.pass_ms(60_000)
        rig_.broker.links[0].deliver([delivery(1, b"a")])
        await rig_.pass_ms(BATCH_LINGER_MS - 1)
        rig_.broker.links[0].deliver([delivery(2, b"b")])
        await ticks()
        assert not waiting.done()
        await rig_.pass_ms(1)
        assert [b"a", b"b"] == [each.value for each in await waiting]


async def test_batch_receive_returns_all_permits_first() -> None:
    """Otherwise it would wait for messages that have no permits."""
    async with consuming(receiver_queue_size=10) as (rig_, consumer):
        rig_.broker.links[0].deliver([delivery(1, b"v")])
        await consumer.receive()
        assert ("c", "permits", 1) not in rig_.broker.calls
        waiting = asyncio.ensure_future(consumer.batch_receive(10))
        await ticks()
        assert ("c", "permits", 1) == rig_.broker.calls[-1]
        waiting.cancel()


async def test_batch_larger_than_the_queue_returns_a_full_queue() -> None:
    async with consuming(receiver_queue_size=4) as (rig_, consumer):
        waiting = asyncio.ensure_future(consumer.batch_receive(10, timeout_ms=60_000))
        await ticks()
        rig_.broker.links[0].deliver([delivery(1, *[b"v"] * 4)])
        await ticks()
        assert waiting.done()
        assert 4 == len(await waiting)


async def test_cancelled_batch_receive_leaves_the_queue_intact() -> None:
    async with consuming() as (rig_, consumer):
        waiting = asyncio.ensure_future(consumer.batch_receive(5, timeout_ms=60_000))
        rig_.broker.links[0].deliver([delivery(1, b"a", b"b")])
        await ticks()
        waiting.cancel()
        await ticks()
        assert 2 == consumer.queued


async def test_new_partitions_are_consumed_from_their_beginning() -> None:
    """The broker's topic has three; this consumer knew of one."""
    async with consuming() as (rig_, consumer):
        await rig_.pass_ms(rig_.services.partition_refresh_ms)
        assert [(0, "latest"), (1, EARLIEST), (2, EARLIEST)] == [
            (each.partition, each.start) for each in requests(rig_)
        ]
        rig_.broker.links[2].deliver([delivery(1, b"v")])
        message = await consumer.receive()
        assert 2 == message.partition
        await consumer.acknowledge(message)


async def test_new_partition_delivers_before_the_others_are_open() -> None:
    async with consuming() as (rig_, consumer):
        await rig_.pass_ms(rig_.services.partition_refresh_ms - 1)
        opened, hold = rig_.broker.open_consumer, asyncio.Event()

        async def deliver_at_once(request: ConsumerRequest, **rest: Any) -> RecordingLink:
            if request.partition == 2 and not hold.is_set():
                await hold.wait()
                raise Unavailable("not yet")
            return await opened(request, **rest)

        rig_.broker.open_consumer = deliver_at_once  # type: ignore[method-assign]
        await rig_.pass_ms(1)
        rig_.broker.links[1].deliver([delivery(1, b"v")])
        message = await consumer.receive(timeout_ms=0)
        hold.set()
        await ticks()
        await consumer.acknowledge(message)
        await rig_.pass_ms(rig_.services.partition_refresh_ms)
        assert [0, 1, 2] == [each.partition for each in requests(rig_)]


async def test_final_error_is_raised_behind_the_queued_messages() -> None:
    async with consuming(partitions=2) as (rig_, consumer):
        rig_.broker.links[0].deliver([delivery(1, b"v")])
        rig_.broker.links[1].on_ended(TopicNotFound("deleted"))
        message = await consumer.receive()
        for call in (
            consumer.receive(), consumer.batch_receive(1), consumer.acknowledge(message),
            consumer.seek("latest"), consumer.redeliver_unacknowledged(),
        ):  # fmt: skip
            with pytest.raises(TopicNotFound):
                await call


async def test_failed_consumer_raises_to_all_waiters() -> None:
    async with consuming() as (rig_, consumer):
        receiving = asyncio.ensure_future(consumer.receive())
        await ticks()
        rig_.broker.links[0].on_ended(Unavailable("lost"))
        rig_.broker.fail_all = Unavailable("away")
        consumer.fail(Unavailable("broken"))
        with pytest.raises(Unavailable, match="broken"):
            await receiving


async def test_seek_resets_the_subscription_and_reconnects() -> None:
    async with consuming(partitions=2) as (rig_, consumer):
        before = list(rig_.broker.links)
        rig_.broker.links[1].deliver([delivery(1, b"from before")])
        await consumer.seek(MessageId(5, 3, 1, 1), inclusive=False)
        reset = ("reset_subscription", "orders", "s", ((5, 3), 1), 1, False)
        assert reset in rig_.broker.calls
        assert [False, True] == [each.is_closed for each in before]
        assert 0 == consumer.queued
        await consumer.seek(1_000)
        assert ("reset_subscription", "orders", "s", 1_000, None, True) in rig_.broker.calls


async def test_cancelled_seek_leaves_a_working_consumer() -> None:
    async with consuming() as (rig_, consumer):
        rig_.broker.hold_open = asyncio.Event()
        seeking = asyncio.ensure_future(consumer.seek("earliest"))
        await ticks()
        seeking.cancel()
        await ticks()
        rig_.broker.hold_open.set()
        rig_.broker.links[0].on_ended(None)
        await ticks()
        rig_.broker.links[-1].deliver([delivery(1, b"v")])
        assert b"v" == (await consumer.receive(timeout_ms=0)).value


async def test_unsubscribe_that_is_refused_leaves_a_working_consumer() -> None:
    async with consuming() as (rig_, consumer):
        delete = rig_.broker.delete_subscription

        async def refuse(topic: str, name: str, *, force: bool) -> None:
            raise ConsumerBusy("others")

        rig_.broker.delete_subscription = refuse  # type: ignore[method-assign]
        with pytest.raises(ConsumerBusy):
            await consumer.unsubscribe()
        rig_.broker.links[-1].deliver([delivery(1, b"v")])
        assert b"v" == (await consumer.receive()).value
        rig_.broker.delete_subscription = delete  # type: ignore[method-assign]
        rig_.broker.fail_next = SubscriptionNotFound("gone with its consumer")
        await consumer.unsubscribe()
        with pytest.raises(AlreadyClosed):
            await consumer.receive()


async def test_last_id_can_be_acknowledged() -> None:
    async with consuming(type_=SubscriptionType.EXCLUSIVE) as (rig_, consumer):
        last = await consumer.get_last_message_id()
        assert MessageId(-1, -1, -1, 0) == last
        await consumer.acknowledge_cumulative(MessageId(5, 7, 2, 0, batch_size=3))
        acknowledgement = Acknowledgement(Position(5, 7), -1, 3)
        assert ("c", "acknowledge_upto", acknowledgement) == rig_.broker.calls[-1]


async def test_names_are_public_properties() -> None:
    async with consuming() as (_, consumer):
        names = (consumer.topic, consumer.subscription, consumer.consumer_name)
        assert ("orders", "s", "c") == names
