"""One partition of a consumer: how it gets over the end of a link."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kledger.ledger import Position
from kledger.native.broker import ConsumerRequest, RecordPosition
from kledger.native.client.partition_consumer import PartitionConsumer
from kledger.native.client.receive_queue import ReceiveQueue
from kledger.native.client.reconnect_plan import BUSY_RETRY_MS
from kledger.native.client.subscribe_options import SubscribeOptions
from kledger.native.errors import (
    AlreadyClosed,
    ConsumerBusy,
    KledgerError,
    SubscriptionFenced,
    TopicNotFound,
    Unavailable,
)
from kledger.native.message import Message
from kledger.native.message_id import MessageId
from kledger.subscriptions.model import SubscriptionType
from tests.native.client_builders import Rig, delivery, rig, ticks
from tests.native.recording_broker import RecordingLink


@dataclass
class It:
    rig: Rig
    consumer: PartitionConsumer
    queue: ReceiveQueue
    failures: list[KledgerError]

    @property
    def link(self) -> RecordingLink:
        return self.rig.broker.links[-1]

    @property
    def requests(self) -> list[ConsumerRequest]:
        return [call[1] for call in self.rig.broker.calls if call[0] == "open_consumer"]

    def receive(self, entry_id: int = 1) -> Message:
        """Deliver one message and receive it."""
        self.link.deliver([delivery(entry_id, b"v")])
        message = self.queue.take()
        assert message is not None
        self.consumer.note_received([message])
        return message


@asynccontextmanager
async def consumer(**options: Any) -> AsyncIterator[It]:
    async with rig() as rig_:
        queue, failures = ReceiveQueue(rig_.services.decoder, lambda: None), list[KledgerError]()
        found = PartitionConsumer(
            rig_.services,
            SubscribeOptions(
                subscription="s",
                type=SubscriptionType.EXCLUSIVE,
                start="earliest",
                name="c",
                **options,
            ),
            topic="orders",
            partition=0,
            start="earliest",
            queue=queue,
            dead_letters=None,
            on_arrived=lambda: None,
            on_failed=failures.append,
        )
        yield It(rig_, found, queue, failures)
        await found.close()


async def test_after_a_reset_it_is_back_at_once() -> None:
    async with consumer() as it:
        await it.consumer.open()
        it.link.deliver([delivery(1, b"v")])
        it.link.on_ended(None)
        assert 0 == len(it.queue)
        await ticks()
        assert 2 == len(it.rig.broker.links)
        assert ("c", "permits", 1_000) == it.rig.broker.calls[-1]
        assert it.requests[0] == it.requests[1]


async def test_lost_link_is_reopened_with_backoff() -> None:
    async with consumer() as it:
        await it.consumer.open()
        it.link.on_ended(Unavailable("lost"))
        it.rig.broker.fail_all = Unavailable("away")
        await ticks()
        assert 1 == len(it.requests)
        for _ in range(40):
            await it.rig.pass_ms(1_000)
        assert 8 < len(it.requests) < 20
        it.rig.broker.fail_all = None
        await it.rig.pass_ms(5_000)
        assert (2, []) == (len(it.rig.broker.links), it.failures)


async def test_it_says_that_it_continues_until_its_position_is_set() -> None:
    """So that the server delivers the removal of a key whose value was received."""
    async with consumer(reads_compacted=True) as it:
        await it.consumer.open()
        it.link.on_ended(Unavailable("lost"))
        await it.rig.pass_ms(60_000)
        it.receive()
        it.link.on_ended(Unavailable("lost"))
        await it.rig.pass_ms(60_000)
        it.link.on_ended(None)
        await ticks()
        assert [False, False, True, False] == [each.is_continued for each in it.requests]
        assert all(each.reads_compacted for each in it.requests)


@pytest.mark.parametrize("error", [TopicNotFound("deleted"), AlreadyClosed("closed")])
async def test_final_error_is_reported_without_retry(error: KledgerError) -> None:
    async with consumer() as it:
        await it.consumer.open()
        it.link.on_ended(error)
        await it.rig.pass_ms(60_000)
        assert ([error], 1) == (it.failures, len(it.requests))
        with pytest.raises(type(error)):
            await it.consumer.reopen_after_reset(None)


async def test_first_opening_raises_the_servers_error() -> None:
    async with consumer() as it:
        for error in (ConsumerBusy("taken"), Unavailable("away"), TopicNotFound("none")):
            it.rig.broker.fail_next = error
            with pytest.raises(type(error)):
                await it.consumer.open()


async def test_first_opening_waits_for_a_reset_to_end() -> None:
    async with consumer() as it:
        it.rig.broker.fail_next = SubscriptionFenced("being reset")
        opening = asyncio.ensure_future(it.consumer.open())
        await it.rig.pass_ms(200)
        await opening


async def test_own_shadow_is_waited_for_but_not_for_ever() -> None:
    """The server has not noticed yet that the old link is dead."""
    async with consumer() as it:
        await it.consumer.open()
        it.link.on_ended(Unavailable("lost"))
        it.rig.broker.fail_all = ConsumerBusy("taken")
        for _ in range(10):
            await it.rig.pass_ms(1_000)
        assert [] == it.failures
        for _ in range(BUSY_RETRY_MS // 1_000):
            await it.rig.pass_ms(1_000)
        assert [ConsumerBusy] == [type(each) for each in it.failures]


async def test_link_that_ends_while_it_is_opened_is_opened_again() -> None:
    async with consumer() as it:
        await it.consumer.open()
        opened = it.rig.broker.open_consumer

        async def ending(request: ConsumerRequest, **rest: Any) -> RecordingLink:
            link = await opened(request, **rest)
            link.on_ended(None)
            return link

        it.rig.broker.open_consumer = ending  # type: ignore[method-assign]
        it.link.on_ended(None)
        await ticks()
        assert it.consumer.session is None
        it.rig.broker.open_consumer = opened  # type: ignore[method-assign]
        await it.rig.pass_ms(1_000)
        assert it.consumer.session is not None
        assert it.consumer.session.is_alive
        assert ([], 3) == (it.failures, len(it.requests))


async def test_ended_links_are_ignored() -> None:
    async with consumer() as it:
        await it.consumer.open()
        old = it.link
        old.on_ended(None)
        await ticks()
        old.deliver([delivery(1, b"late")])
        old.on_ended(TopicNotFound("late"))
        assert ([], 0) == (it.failures, len(it.queue))


async def test_acknowledgement_in_flight_when_the_link_ends() -> None:
    """A reset makes it void; a loss leaves it open whether it was done."""
    async with consumer() as it:
        await it.consumer.open()
        for end, error in ((None, None), (Unavailable("lost"), Unavailable)):
            message = it.receive()
            link = it.link
            link.hold = asyncio.Event()
            session = it.consumer.session_for(message.entry.link)
            assert session is not None
            task = asyncio.ensure_future(session.acknowledge([message.acknowledgement()]))
            await ticks()
            link.on_ended(end)
            it.rig.broker.fail_next = Unavailable("lost")
            link.hold.set()
            await asyncio.wait([task])
            assert (error or type(None)) is type(task.exception())
            await it.rig.pass_ms(10_000)
            assert it.consumer.session_for(message.entry.link) is None


async def test_id_from_elsewhere_is_meant_now() -> None:
    async with consumer() as it:
        await it.consumer.open()
        foreign = MessageId(5, 1, 0, 0, batch_size=3)
        assert it.consumer.session is it.consumer.session_for(foreign.link)
        it.link.on_ended(Unavailable("lost"))
        with pytest.raises(Unavailable):
            it.consumer.session_for(foreign.link)


async def test_position_that_is_not_durable_is_kept_by_the_client() -> None:
    async with consumer(is_durable=False) as it:
        await it.consumer.open()
        it.receive(7)
        it.link.deliver([delivery(8, b"not handed out")])
        it.link.on_ended(Unavailable("lost"))
        await it.rig.pass_ms(1_000)
        again = it.requests[-1]
        assert (RecordPosition(Position(5, 7), 0), False) == (again.start, again.is_start_inclusive)
        await it.consumer.restart_at("latest", inclusive=True)
        assert ("latest", True) == (it.requests[-1].start, it.requests[-1].is_start_inclusive)


async def test_old_session_is_closed_before_the_next_is_opened() -> None:
    """An exclusive subscription has room for one."""
    async with consumer() as it:
        await it.consumer.open()
        del it.rig.broker.calls[:]
        await it.consumer.reopen_after_reset(it.consumer.session)
        assert ["close", "open_consumer"] == [
            call[0] if call[0] == "open_consumer" else call[1] for call in it.rig.broker.calls[:2]
        ]


async def test_restart_waits_for_a_link_that_is_being_opened() -> None:
    async with consumer() as it:
        await it.consumer.open()
        before = it.consumer.session
        it.link.on_ended(None)
        await it.consumer.reopen_after_reset(before)
        assert 2 == len(it.rig.broker.links)
        assert not it.link.is_closed


async def test_close_ends_trying() -> None:
    async with consumer() as it:
        await it.consumer.open()
        it.link.on_ended(Unavailable("lost"))
        waiting = asyncio.ensure_future(it.consumer.reopen_after_reset(None))
        await ticks()
        await it.consumer.close()
        with pytest.raises(AlreadyClosed):
            await waiting
        await it.rig.pass_ms(60_000)
        assert 1 == len(it.requests)


async def test_opening_during_the_closing_closes_its_link() -> None:
    async with consumer() as it:
        it.rig.broker.hold_open = hold = asyncio.Event()
        opening = asyncio.ensure_future(it.consumer.open())
        await ticks()
        await it.consumer.close()
        hold.set()
        with pytest.raises(AlreadyClosed):
            await opening
        assert it.link.is_closed
        it.link.on_ended(Unavailable("the server is stopping"))
        await it.rig.pass_ms(60_000)
        assert 1 == len(it.rig.broker.links)
