"""A subscriber over a scripted server: what ends with it, and what it does not know.

The simulation of named topics found these.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

import kledger
from kledger.batches.builder import NewRecord, build_batch
from kledger.named_topics.model import (
    ChannelAllocation,
    ChannelElements,
    ChannelPoll,
    ChannelPollResult,
    CommitOutcome,
    CommitRequest,
    NamedTopicInfo,
    NamedTopicOptions,
    OwnedChannel,
    SeekOutcome,
    SeekRequest,
    SubscriberJoin,
)
from kledger.native.client.named_topics.named_topic import NamedTopic
from kledger.native.errors import SubscriberDisconnected, Unavailable
from kledger.runtime.signal import Signal
from tests.native.client_builders import Rig, rig, ticks
from tests.native.recording_broker import RecordingBroker


class ScriptedServer(RecordingBroker):
    """One channel, of which each poll gets what the test has given.

    Attributes:
        joins: how often the subscriber has joined.
        given: batches that the next poll returns, and how many elements they have.
        is_known: whether the server knows the subscriber.
        holds_seeks: a seek is performed, and not answered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.joins = 0
        self.given: list[bytes] = []
        self.is_known = True
        self.refuses_joins = False
        self.holds_seeks = False
        self.has_changed = Signal()

    def give(self, *values: bytes) -> None:
        self.given.append(bytes(build_batch([NewRecord(value) for value in values])))
        self.has_changed.notify()

    def forget(self) -> None:
        self.is_known = False
        self.has_changed.notify()

    async def join_subscriber(self, topic: str, join: SubscriberJoin) -> ChannelAllocation:
        if self.refuses_joins:
            raise Unavailable("there is no server")
        self.joins += 1
        self.is_known = True
        channels = (OwnedChannel(0, self.joins, 0, 0),)
        return ChannelAllocation("g", 1, self.joins, 1, channels, "", "")

    async def poll_channels(self, topic: str, poll: ChannelPoll) -> ChannelPollResult:
        while True:
            version = self.has_changed.version
            if not self.is_known:
                raise SubscriberDisconnected("the server has restarted")
            if self.given and poll.fetches:
                batches, self.given = tuple(self.given), []
                fetch = poll.fetches[0]
                return ChannelPollResult(
                    None, (ChannelElements(0, fetch.ownership, 0, 1000, batches),)
                )
            await self.has_changed.wait_beyond(version)

    async def commit_channels(self, topic: str, request: CommitRequest) -> list[CommitOutcome]:
        await asyncio.sleep(0)
        if not self.is_known:
            raise SubscriberDisconnected("the server has restarted")
        return [CommitOutcome("committed", "", "") for _ in request.commits]

    async def seek_channels(self, topic: str, request: SeekRequest) -> list[SeekOutcome]:
        while self.holds_seeks:
            await self.has_changed.wait()
        return [SeekOutcome(each.channel, 5, 6, 1) for each in request.targets]


@dataclass
class Scene:
    """A subscriber, its server and its clock."""

    rig: Rig
    server: ScriptedServer
    subscriber: kledger.Subscriber


@asynccontextmanager
async def subscribed() -> AsyncIterator[Scene]:
    server = ScriptedServer()
    async with rig(server) as on:
        info = NamedTopicInfo("orders", 1, NamedTopicOptions())

        async def create_producer(*_: object) -> kledger.Producer:
            raise AssertionError("nothing is published here")

        topic = NamedTopic(on.services, info, create_producer=create_producer, opened={})
        subscriber = await topic.create_subscriber(group="g")
        yield Scene(on, server, subscriber)
        await subscriber.close()


async def test_commit_ends_when_its_subscriber_is_closed_and_the_server_has_forgotten_it() -> None:
    """It asked again for ever, as a closed subscriber does not join again."""
    async with subscribed() as on:
        on.server.give(b"a")
        element = await on.subscriber.receive()
        assert element is not None
        on.server.forget()
        committing = asyncio.create_task(element.commit())
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await on.subscriber.close()
            result = await committing
        assert isinstance(result.error, kledger.IllegalState)


@pytest.mark.parametrize("tick_count", range(8))
async def test_subscriber_that_loses_its_server_closes_though_a_receive_waits(
    tick_count: int,
) -> None:
    """Its polling task went in circles without ever yielding to the event loop."""
    async with subscribed() as on:
        on.server.refuses_joins = True
        receiving = asyncio.create_task(on.subscriber.receive())
        await ticks()
        on.server.forget()
        await ticks(tick_count)
        closing = asyncio.create_task(on.subscriber.close())
        await on.rig.pass_ms(10_000)
        async with asyncio.timeout(60):
            await closing
        with pytest.raises(asyncio.CancelledError):
            await receiving


async def test_later_receive_does_not_return_before_an_earlier_one() -> None:
    """It is served at once, while the earlier one has its element, and its caller has not run."""
    order: list[object] = []
    async with subscribed() as on:

        async def receive() -> None:
            element = await on.subscriber.receive()
            assert element is not None
            order.append(element.value)

        earlier = asyncio.create_task(receive())
        await ticks()
        state = on.subscriber._state
        waiting = on.subscriber._requests.oldest
        assert waiting is not None
        on.server.give(b"a", b"b")
        while not waiting.outcome.done():
            await asyncio.sleep(0)
            if waiting.outcome.done() and not order:
                await receive()
        await earlier
        assert [b"a", b"b"] == order
        assert 0 == state.buffered_bytes


async def test_seek_whose_outcome_is_not_known_lets_its_subscriber_join_again() -> None:
    """It stayed in the revision before: the server refused every commit as unread."""
    async with subscribed() as on:
        on.server.holds_seeks = True
        seeking = asyncio.create_task(on.subscriber.seek_to_tail(0))
        await ticks()
        seeking.cancel()
        await ticks()
        assert frozenset() == on.subscriber.channels
        on.server.give(b"a")
        assert await on.subscriber.receive() is not None
        assert (2, frozenset({0})) == (on.server.joins, on.subscriber.channels)
