"""Network: the calls of clients to a server that may end, over links that may be slow or cut.

Rule: a call travels to the server, is performed there whatever happens to its client, and its
answer travels back. Either way may take a while, be held (the client is frozen) or be cut; a call
that is under way when its link or its server ends fails with Unavailable, and may have happened.
What the server answers is checked by the model in the order in which it answers.
Must not know: what clients do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, TypeVar

from kledger.ledger import Buffer
from kledger.named_topics.model import (
    ChannelAllocation,
    ChannelEnds,
    ChannelPoll,
    ChannelPollResult,
    CommitOutcome,
    CommitRequest,
    NamedTopicInfo,
    NamedTopicOptions,
    SeekOutcome,
    SeekRequest,
    SubscriberGroupInfo,
    SubscriberJoin,
)
from kledger.native.broker import OnEnded, ProducerLink, SendReceipt, TopicInfo
from kledger.native.errors import KledgerError, Unavailable
from kledger.native.server.service import NativeService
from kledger.runtime.signal import Signal
from tests.simulation.clock import SimulatedClock
from tests.simulation.named_topics.model import GroupModel, TopicModel
from tests.simulation.named_topics.server import ServerProcess
from tests.simulation.schedule import Schedule

Answer = TypeVar("Answer")

DELAYS_MS = ((0,), (0, 0, 1), (0, 1, 30), (0, 0, 5, 300))
"""How long a call or an answer travels; a seed draws one row."""


class Network:
    """Between all clients and the server, None while there is none."""

    def __init__(
        self, model: TopicModel, schedule: Schedule, clock: SimulatedClock, random: Random
    ) -> None:
        self.model = model
        self.schedule = schedule
        self.clock = clock
        self.random = random
        self.delays_ms = random.choice(DELAYS_MS)
        self.server: ServerProcess | None = None
        self.links: dict[Link, None] = {}
        self._performing: dict[asyncio.Task[Any], None] = {}

    def lose_server(self) -> None:
        """Fail what is under way, and perform nothing more."""
        self.server = None
        for link in self.links:
            link.lose_calls()
        for task in list(self._performing):
            task.cancel()

    def perform(self, work: Coroutine[Any, Any, Answer]) -> "asyncio.Task[Answer]":
        """Let the server perform a call."""
        task = asyncio.get_running_loop().create_task(work)
        self._performing[task] = None
        task.add_done_callback(self._performed)
        return task

    def _performed(self, task: asyncio.Task[Any]) -> None:
        del self._performing[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, KledgerError):
            self.schedule.interrupt(error)


class Link:
    """The connection of one client process: those methods of a `Broker` that named topics need.

    Attributes:
        is_cut: every call fails.
        is_frozen: calls and answers wait.
    """

    def __init__(self, network: Network) -> None:
        self.is_cut = False
        self.is_frozen = False
        self._changed = Signal()
        self._network = network
        self._calls: dict[asyncio.Future[Any], asyncio.Task[Any]] = {}
        self._producers: dict[_ProducerLinkOverNetwork, None] = {}
        network.links[self] = None

    async def __aenter__(self) -> "Link":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Forget the client: its calls are cut, though the server may perform them."""
        self.is_cut = True
        self._network.links.pop(self, None)
        self.lose_calls()
        self.thaw()

    def cut(self) -> None:
        """Fail all calls from now on; the server cancels some of those that it performs."""
        self.is_cut = True
        for task in list(self._calls.values()):
            if self._network.random.random() < 0.5:
                task.cancel()
        self.lose_calls()

    def heal(self) -> None:
        self.is_cut = False

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        self.is_frozen = False
        self._changed.notify()

    def lose_calls(self) -> None:
        """Fail the calls that are under way."""
        for outcome in self._calls:
            if not outcome.done():
                outcome.set_exception(Unavailable("the connection was lost"))
        producers, self._producers = self._producers, {}
        for producer in producers:
            producer.lose()

    async def travel(self) -> None:
        """Take some time in one direction. Raises Unavailable if the link is cut meanwhile."""
        delay_ms = self._network.random.choice(self._network.delays_ms)
        if delay_ms:
            await self._network.clock.sleep(delay_ms)
        while self.is_frozen:
            await self._changed.wait()
        if self.is_cut:
            raise Unavailable("the link is cut")

    async def call(self, perform: Callable[[ServerProcess], Coroutine[Any, Any, Answer]]) -> Answer:
        """Cross the network, let the server perform a call, and cross back."""
        await self.travel()
        server = self._network.server
        if server is None:
            raise Unavailable("there is no server")
        return await self.cross_back(self._network.perform(perform(server)))

    async def cross_back(self, task: "asyncio.Task[Answer]") -> Answer:
        """Wait for what the server performs; the server cancels it if the caller gives up."""
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        task.add_done_callback(partial(_pass_on, outcome))
        self._calls[outcome] = task
        try:
            answer = await outcome
        except asyncio.CancelledError:
            task.cancel()
            raise
        except KledgerError:
            await self.travel()
            raise
        finally:
            del self._calls[outcome]
        await self.travel()
        return answer

    async def _ask(self, ask: Callable[[NativeService], Awaitable[Answer]]) -> Answer:
        async def perform(server: ServerProcess) -> Answer:
            return await ask(server.service)

        return await self.call(perform)

    # Named topics

    async def open_named_topic(
        self, name: str, *, channel_count: int, options: NamedTopicOptions, create: bool
    ) -> NamedTopicInfo:
        return await self._ask(
            lambda service: service.open_named_topic(
                name, channel_count=channel_count, options=options, create=create
            )
        )

    async def subscriber_groups(self, topic: str) -> list[SubscriberGroupInfo]:
        return await self._ask(lambda service: service.subscriber_groups(topic))

    async def ensure_subscriber_group(
        self, topic: str, group: str, *, filter_name: str, converter_name: str
    ) -> None:
        await self._ask(
            lambda service: service.ensure_subscriber_group(
                topic, group, filter_name=filter_name, converter_name=converter_name
            )
        )

    async def join_subscriber(self, topic: str, join: SubscriberJoin) -> ChannelAllocation:
        async def perform(server: ServerProcess) -> ChannelAllocation:
            model, ends = self._network.model, dict(self._network.model.ends)
            allocation = await server.service.join_subscriber(topic, join)
            if allocation.group not in model.groups:
                model.groups[allocation.group] = GroupModel.joined_anonymously(
                    allocation, ends, model
                )
            self._group(allocation.group).allocated(server.number, allocation)
            return allocation

        return await self.call(perform)

    async def leave_subscriber(self, topic: str, group: str, subscriber: int) -> None:
        await self._ask(lambda service: service.leave_subscriber(topic, group, subscriber))

    async def poll_channels(self, topic: str, poll: ChannelPoll) -> ChannelPollResult:
        async def perform(server: ServerProcess) -> ChannelPollResult:
            group = self._group(poll.group)
            committed = group.committed()
            result = await server.service.poll_channels(topic, poll)
            if result.allocation is not None:
                group.allocated(server.number, result.allocation)
            group.fetched(server.number, poll.subscriber, result.elements, committed)
            return result

        return await self.call(perform)

    async def commit_channels(self, topic: str, request: CommitRequest) -> list[CommitOutcome]:
        async def perform(server: ServerProcess) -> list[CommitOutcome]:
            group = self._group(request.group)
            sent = group.begin_commits(request)
            try:
                outcomes = await server.service.commit_channels(topic, request)
            except BaseException as error:
                if server.has_refused(error):
                    group.refuse_commits(sent)
                else:
                    group.lose_commits(sent)
                raise
            group.end_commits(sent, outcomes)
            return outcomes

        return await self.call(perform)

    async def seek_channels(self, topic: str, request: SeekRequest) -> list[SeekOutcome]:
        async def perform(server: ServerProcess) -> list[SeekOutcome]:
            group, ends = self._group(request.group), dict(self._network.model.ends)
            group.begin_seek(request)
            try:
                outcomes = await server.service.seek_channels(topic, request)
            except BaseException as error:
                if server.has_refused(error):
                    group.refuse_seek(request)
                else:
                    group.end_seek(request, None, ends)
                raise
            group.end_seek(request, outcomes, ends)
            return outcomes

        return await self.call(perform)

    async def channel_ends(
        self, topic: str, group: str, subscriber: int, channel: int
    ) -> list[ChannelEnds]:
        return await self._ask(
            lambda service: service.channel_ends(topic, group, subscriber, channel)
        )

    def _group(self, name: str) -> GroupModel:
        return self._network.model.groups[name]

    # Publishing

    async def wait_for_room(self, topic: str, size: int, wait_ms: int) -> bool:
        return await self._ask(lambda service: service.wait_for_room(topic, size, wait_ms))

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        return await self._ask(lambda service: service.lookup(topic, create=create))

    async def open_producer(
        self, topic: str, partition: int, *, name: str, on_ended: OnEnded
    ) -> ProducerLink:
        producer = _ProducerLinkOverNetwork(self, self._network, on_ended)

        async def perform(server: ServerProcess) -> None:
            producer.link = await server.service.open_producer(
                topic, partition, name=name, on_ended=producer.on_ended
            )

        self._producers[producer] = None
        try:
            await self.call(perform)
        except BaseException:
            producer.is_lost = True
            self._producers.pop(producer, None)
            raise
        if producer.is_lost:
            raise Unavailable("the connection was lost")
        return producer


class _ProducerLinkOverNetwork:
    """A link whose sends arrive in their order."""

    def __init__(self, link: Link, network: Network, on_ended: OnEnded) -> None:
        self.link: ProducerLink
        self._link = link
        self._network = network
        self._order = asyncio.Lock()
        self._report = on_ended
        self.is_lost = False

    def lose(self) -> None:
        """End with the connection."""
        self.on_ended(Unavailable("the connection was lost"))

    def on_ended(self, error: KledgerError | None) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._report(error)

    async def send(self, batch: Buffer, *, is_resent: bool = False) -> SendReceipt:
        data = bytes(batch)
        async with self._order:
            await self._link.travel()
            if self.is_lost:
                raise Unavailable("the link has ended")
            task = self._network.perform(self._send(data, is_resent=is_resent))
            await asyncio.sleep(0)  # it begins before the next one
        return await self._link.cross_back(task)

    async def _send(self, data: bytes, *, is_resent: bool) -> SendReceipt:
        return await self.link.send(data, is_resent=is_resent)

    async def close(self) -> None:
        self.is_lost = True
        await self.link.close()


def _pass_on(outcome: "asyncio.Future[Answer]", task: "asyncio.Task[Answer]") -> None:
    if outcome.done():
        return
    if task.cancelled():
        outcome.set_exception(Unavailable("the server has cancelled the call"))
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())
