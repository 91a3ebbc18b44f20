"""Subscriber: receives the elements of the channels that it owns, commits and seeks.

Rule: receives complete strictly in their order, from what `ChannelPolling` has fetched ahead of
them. A request about positions runs alone: no receive is served until it ends, and what was
pre-fetched of the channels that it moves is dropped. A subscriber that is disconnected loses its
channels (`Membership`); the next receive, commit or seek joins again.
Must not know: whether the server runs in this process.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeGuard, TypeVar, overload

from kledger.named_topics.model import (
    ALL_CHANNELS,
    ALREADY_COMMITTED,
    COMMITTED,
    ILLEGAL_STATE,
    NO_OFFSET,
    REJECTED,
    TO_HEAD,
    TO_POSITION,
    TO_TAIL,
    TO_TIME,
    WRONG_POSITION,
    ChannelCommit,
    ChannelEnds,
    ChannelTarget,
    CommitOutcome,
    CommitRequest,
    SeekRequest,
)
from kledger.native.channel_position import ChannelPosition
from kledger.native.client.close_once import CloseOnce, ClosesOnExit
from kledger.native.client.named_topics.channel_polling import ChannelPolling
from kledger.native.client.named_topics.commit_queue import CommitQueue, PendingCommit
from kledger.native.client.named_topics.element import CommitResult, Element, FailedElement
from kledger.native.client.named_topics.expired_elements import ExpiredElements
from kledger.native.client.named_topics.flow_control import FlowControl
from kledger.native.client.named_topics.membership import Membership
from kledger.native.client.named_topics.receive_requests import Received, ReceiveRequests
from kledger.native.client.named_topics.subscriber_options import SubscriberOptions
from kledger.native.client.named_topics.subscriber_state import SubscriberState
from kledger.native.client.named_topics.topic_view import TopicOfChannels
from kledger.native.client.reconnect import open_with_retries
from kledger.native.client.services import ClientServices
from kledger.native.errors import (
    IllegalArgument,
    IllegalState,
    KledgerError,
    SubscriberDisconnected,
    SubscriberGroupDestroyed,
)

logger = logging.getLogger(__name__)

CHANNEL_NUMBERS = 1 << 31
TIME_MS_MAX = (1 << 62) - 1

Answer = TypeVar("Answer")


class Subscriber(ClosesOnExit):
    """Made by `NamedTopic.create_subscriber`; also an asynchronous context manager."""

    def __init__(
        self,
        services: ClientServices,
        topic: TopicOfChannels,
        options: SubscriberOptions,
        on_closed: Callable[["Subscriber"], None],
    ) -> None:
        """Args: on_closed: called when it is closed."""
        self.flow_control = FlowControl()
        self._services = services
        self._topic = topic
        self._options = options
        own = (options.deserializer, options.filter.function, options.converter.function)
        self._has_functions = own != (None, None, None)
        self._on_closed = on_closed
        self._closing = CloseOnce(services.supervisor, f"subscriber of {topic.name}")
        self._close_actions: list[Callable[[], object]] = []
        self._state = SubscriberState()
        self._requests = ReceiveRequests()
        self._commits = CommitQueue(self._send_commits, services.supervisor)
        self._membership = Membership(services, topic, options, self._state, self._closing)
        self._expired = ExpiredElements(services.clock, topic.options.element_expiry_ms)
        self._polling = ChannelPolling(
            services,
            topic,
            options,
            state=self._state,
            requests=self._requests,
            membership=self._membership,
            expired=self._expired,
        )
        self._membership.on_changed = self._polling.refresh
        self._exclusive = asyncio.Lock()

    # What it is

    @property
    def named_topic(self) -> TopicOfChannels:
        """The topic."""
        return self._topic

    @property
    def group(self) -> str | None:
        """The name of its group; None: it is anonymous."""
        return self._options.group or None

    @property
    def id(self) -> int:
        """Its number in the group, by which channels are allocated."""
        return self._membership.id

    @property
    def is_active(self) -> bool:
        """Whether it is not closed."""
        return not self._closing.has_begun

    @property
    def channels(self) -> frozenset[int]:
        """The channels that it owns."""
        return self._state.channels

    @property
    def channel_count(self) -> int:
        """How many channels the topic has."""
        return self._state.channel_count

    def is_owner(self, channel: int) -> bool:
        """Return whether it owns a channel."""
        return channel in self._state.channels

    def on_close(self, action: Callable[[], object]) -> None:
        """Call `action` once, when the subscriber is closed; a coroutine function is awaited.

        What it raises is logged, and stops no other action.
        """
        self._check_active()
        self._close_actions.append(action)

    # Receiving

    async def receive(self) -> Element | None:
        """Return the next element; wait for one, unless the subscriber completes on empty.

        If the caller is cancelled, the element stays, and is the next one.

        Returns:
            None only if the topic is empty and the subscriber completes on empty.

        Raises:
            IllegalState: the subscriber is closed, or its group was destroyed.
            Unavailable: it was disconnected, and could not join again.
            TopicNotFound: the topic was destroyed.
            FunctionFailed: a function of the group has failed for an element, which is skipped.
            Exception: of `deserializer`, filter or converter; the element is skipped.
        """
        found = await self._receive(1)
        return found[0] if found else None

    async def receive_batch(self, count: int) -> list[Element]:
        """Return the next 1 to `count` elements; fewer do not mean that the topic is empty.

        Returns:
            Nothing only if the topic is empty and the subscriber completes on empty.

        Raises:
            IllegalArgument: the count is below 1.
            IllegalState, Unavailable, TopicNotFound, Exception: as `receive`.
        """
        check_count(count)
        return await self._receive(count)

    async def _receive(self, count: int) -> Received:
        self._check_active()
        if self._membership.failure is not None:
            raise self._membership.failure
        if not self.flow_control.try_enter():
            await self.flow_control.enter()
        try:
            self._check_active()
            self._membership.is_left = False
            self._polling.note_received()
            request = self._requests.add(count)
            self._serve()
            self._polling.refresh()
            try:
                if self._requests.has_unreceived_before(request):
                    await self._services.clock.sleep(0)  # their callers run first
                found = await request.outcome
            except asyncio.CancelledError:
                for element in reversed(self._requests.give_back(request)):
                    self._state.put_back(element)
                self._serve()
                raise
            self._requests.note_received(request)
            return found
        finally:
            self.flow_control.leave()

    def _serve(self) -> None:
        """Complete as many receives as possible, the oldest first."""
        while not self._requests.is_held and (request := self._requests.oldest) is not None:
            try:
                found = self._take(request.count)
            except Exception as error:  # noqa: BLE001 - the application's own, and for it
                request.outcome.set_exception(error)
                continue
            if not found:
                break
            self._requests.serve(request, found)
            self._polling.note_received()

    def _take(self, count: int) -> Received:
        """Take elements; one that raises is skipped if it is the first, and else stays."""
        may_raise = self._has_functions or self._membership.has_group_functions
        if not (may_raise or self._expired.is_possible):
            return self._state.take_some(count)
        found: Received = []
        while len(found) < count and (element := self._state.take()) is not None:
            try:
                is_wanted = self._convert(element)
            except Exception:
                if not found:
                    raise
                self._state.put_back(element)
                break
            if is_wanted:
                found.append(element)
        return found

    def _convert(self, element: Element) -> bool:
        """Set the value of an element; return False if it is skipped, or has expired."""
        if isinstance(element, FailedElement):
            raise element.error
        if element in self._expired:
            return False
        options = self._options
        value: Any = element.binary_value
        if options.deserializer is not None and value is not None:
            value = options.deserializer(value)
        if options.filter.function is not None and not options.filter.function(value):
            return False
        if options.converter.function is not None:
            value = options.converter.function(value)
            if value is None:
                return False
        element.value = value
        return True

    async def heartbeat(self) -> None:
        """Send a heartbeat for an application that does not receive at the moment.

        Raises:
            IllegalState: the subscriber is closed.
            Unavailable: the server cannot be reached.
        """
        self._check_active()
        if self._options.group and self._membership.is_connected:
            self._polling.note_received()
            with suppress(SubscriberDisconnected, SubscriberGroupDestroyed):  # the poll says so
                await self._services.broker.poll_channels(
                    self._topic.name, self._polling.poll((), wait_ms=0)
                )

    # Committing

    async def commit(self, channel: int, position: ChannelPosition) -> CommitResult:
        """Commit a position and all elements before it in its channel; return when durable.

        A commit that is refused is a result with an error, and raises nothing.

        Raises:
            IllegalState: the subscriber is closed.
            Unavailable: the server cannot be reached, or cannot write.
        """
        return CommitResult.of(channel, position, await self._queue_commit(channel, position))

    def _queue_commit(
        self, channel: int, position: ChannelPosition
    ) -> "asyncio.Future[CommitOutcome]":
        self._check_active()
        number = channel if _is_number(channel) else ALL_CHANNELS
        return self._commits.add(number, _offset_of(channel, position))

    async def commit_all(self, positions: Mapping[int, ChannelPosition]) -> dict[int, CommitResult]:
        """Commit a position in each of several channels; one that fails stops no other.

        Raises:
            IllegalState, Unavailable: as `commit`.
        """
        self._check_active()
        results = await asyncio.gather(*(self.commit(*item) for item in positions.items()))
        return {result.channel: result for result in results}

    async def _send_commits(self, pending: Sequence[PendingCommit]) -> Sequence[CommitOutcome]:
        """Send commits; join again if the server has forgotten the subscriber."""

        async def send() -> Sequence[CommitOutcome]:
            channels = {channel for channel, _, _ in pending}
            marks = {channel: self._state.read_mark(channel) for channel in channels}
            commits = []
            for channel, offset, _ in pending:
                revision, read_offset = marks[channel]
                commits.append(ChannelCommit(channel, offset, read_offset, revision))
            outcomes = await self._services.broker.commit_channels(
                self._topic.name,
                CommitRequest(self._membership.group, self._membership.id, tuple(commits)),
            )
            self._drop_committed(commits, outcomes)
            return outcomes

        while True:
            try:
                return await self._retrying(send)
            except SubscriberDisconnected as error:
                if self._membership.is_left or self._closing.has_begun:  # it does not join again
                    rejected = CommitOutcome(REJECTED, ILLEGAL_STATE, str(error))
                    return [rejected] * len(pending)
                self._membership.disconnected()
            except SubscriberGroupDestroyed as error:
                return [CommitOutcome(REJECTED, ILLEGAL_STATE, str(error))] * len(pending)
            await self._membership.connect()

    def _drop_committed(
        self, commits: Sequence[ChannelCommit], outcomes: Sequence[CommitOutcome]
    ) -> None:
        highest: dict[tuple[int, int], int] = {}
        for (channel, offset, _, revision), outcome in zip(commits, outcomes, strict=True):
            is_committed = outcome.status in {COMMITTED, ALREADY_COMMITTED}
            if is_committed and offset > highest.get((channel, revision), NO_OFFSET):
                highest[channel, revision] = offset
        for (channel, revision), offset in highest.items():
            self._state.committed(channel, offset, revision)

    # Seeking

    async def seek(self, channel: int, to: ChannelPosition | int) -> ChannelPosition:
        """Let the next element of a channel be the one behind a position, or newer than a time.

        Args:
            channel: one that the subscriber owns.
            to: a position of it, or a time in ms.

        Returns:
            The position that was sought to: the one before the next element. Before the head of the
            channel that is the one before the head, behind the tail it is the tail.

        Raises:
            IllegalState: the subscriber does not own the channel, or is closed; nothing has moved.
            IllegalArgument: the position is of another channel or type; nothing has moved.
            Unavailable: the server cannot be reached, or cannot write.
        """
        return (await self.seek_all({channel: to}))[channel]

    async def seek_all(
        self, targets: Mapping[int, ChannelPosition | int]
    ) -> dict[int, ChannelPosition]:
        """Seek in several channels, all or none; see `seek`."""
        return await self._seek(_targets(targets))

    async def seek_to_head(self, *channels: int) -> dict[int, ChannelPosition]:
        """Let the first available element of each channel be its next one; remove its commits.

        Returns:
            The positions of the first elements; in an empty channel the one before the first.

        Raises:
            IllegalState, Unavailable: as `seek`.
        """
        return await self._seek([ChannelTarget(each, TO_HEAD, 0) for each in _numbers(channels)])

    async def seek_to_tail(self, *channels: int) -> dict[int, ChannelPosition]:
        """Let the next element that is published to each channel be its next one.

        Returns:
            The positions of the last elements; in an empty channel the one before the first.

        Raises:
            IllegalState, Unavailable: as `seek`.
        """
        return await self._seek([ChannelTarget(each, TO_TAIL, 0) for each in _numbers(channels)])

    async def seek_and_commit(self, channel: int, to: ChannelPosition | int) -> ChannelPosition:
        """Seek, and commit the position that was sought to; see `seek`."""
        return (await self.seek_and_commit_all({channel: to}))[channel]

    async def seek_and_commit_all(
        self, targets: Mapping[int, ChannelPosition | int]
    ) -> dict[int, ChannelPosition]:
        """Seek in several channels, all or none, and commit there; see `seek`."""
        return await self._seek(_targets(targets), is_committing=True)

    async def seek_to_tail_and_commit(self, *channels: int) -> dict[int, ChannelPosition]:
        """Seek to the tails, and commit them; see `seek_to_tail`."""
        targets = [ChannelTarget(each, TO_TAIL, 0) for each in _numbers(channels)]
        return await self._seek(targets, is_committing=True)

    async def _seek(
        self, targets: Sequence[ChannelTarget], *, is_committing: bool = False
    ) -> dict[int, ChannelPosition]:
        async with self._alone():
            request = SeekRequest(
                self._membership.group, self._membership.id, is_committing, tuple(targets)
            )
            try:
                outcomes = await self._asking(
                    lambda: self._services.broker.seek_channels(self._topic.name, request)
                )
            except (IllegalState, IllegalArgument):
                raise  # nothing has moved
            except BaseException:  # it may have moved: the next receive joins again
                self._membership.disconnected()
                raise
            self._state.seeked(outcomes)
            return {each.channel: ChannelPosition(each.channel, each.offset) for each in outcomes}

    # Looking up

    async def get_heads(self) -> dict[int, ChannelPosition]:
        """Return for each owned channel the position of the next element, if there is one."""
        heads = {}
        async with self._alone():
            for ends in await self._ends(ALL_CHANNELS):
                offset = self._state.next_offset(ends.channel)
                if offset is not None:
                    offset = max(offset, ends.head_offset)
                    if offset < ends.end_offset:
                        heads[ends.channel] = ChannelPosition(ends.channel, offset)
        return heads

    async def get_tails(self) -> dict[int, ChannelPosition]:
        """Return for each owned channel the position of its last element, if there is one."""
        async with self._alone():
            return {
                each.channel: ChannelPosition(each.channel, each.end_offset - 1)
                for each in await self._ends(ALL_CHANNELS)
                if each.head_offset < each.end_offset
            }

    @overload
    async def get_last_committed(self) -> dict[int, ChannelPosition]: ...

    @overload
    async def get_last_committed(self, channel: int) -> ChannelPosition | None: ...

    async def get_last_committed(
        self, channel: int | None = None
    ) -> "dict[int, ChannelPosition] | ChannelPosition | None":
        """Return the last commit of each owned channel that has one, or that of one channel.

        Returns:
            A dictionary; with a channel its position, None if it is not owned or has no commit.
        """
        async with self._alone():
            found = {
                each.channel: ChannelPosition(each.channel, each.committed_offset)
                for each in await self._ends(ALL_CHANNELS)
                if each.committed_offset > NO_OFFSET
            }
        return found if channel is None else found.get(channel)

    async def get_head(self, channel: int) -> ChannelPosition | None:
        """Return the position of a channel's next element; None: not owned, or nothing there."""
        return (await self.get_heads()).get(channel)

    async def get_tail(self, channel: int) -> ChannelPosition | None:
        """Return the position of a channel's last element; None: not owned, or nothing there."""
        return (await self.get_tails()).get(channel)

    async def get_position(self, channel: int) -> ChannelPosition | None:
        """Return what was received last of a channel, or sought to; None: not owned, or nothing."""
        self._check_active()
        offset = self._state.position(channel)
        return None if offset == NO_OFFSET else ChannelPosition(channel, offset)

    async def get_remaining_messages(self, *channels: int) -> int:
        """Return how many elements follow the last commits of owned channels; none named: all."""
        async with self._alone():
            return sum(
                each.remaining
                for each in await self._ends(ALL_CHANNELS)
                if not channels or each.channel in channels
            )

    async def _ends(self, channel: int) -> list[ChannelEnds]:
        return await self._asking(
            lambda: self._services.broker.channel_ends(
                self._topic.name, self._membership.group, self._membership.id, channel
            )
        )

    # Asking

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Run the body alone: requests in their order, receives are served behind them."""
        self._check_active()
        self._requests.held_count += 1
        try:
            async with self._exclusive:
                if self._membership.failure is not None:
                    raise self._membership.failure
                await self._membership.connect()
                yield
        finally:
            self._requests.held_count -= 1
            self._serve()
            self._polling.refresh()

    async def _asking(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask the server; join again, once, if it has forgotten the subscriber."""
        try:
            return await self._retrying(ask)
        except SubscriberDisconnected:
            self._membership.disconnected()
            await self._membership.connect()
            return await self._retrying(ask)

    async def _retrying(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask the server again while it cannot be reached, up to the operation timeout."""
        return await open_with_retries(
            self._services, ask, is_first=False, retry_ms=self._services.operations.timeout_ms
        )

    def _check_active(self) -> None:
        if self._closing.has_begun:
            raise IllegalState(f"the subscriber of {self._topic.name} is closed")

    # Connecting

    async def open(self) -> None:
        """Join for the first time; only for `NamedTopic`. Raises the server's error."""
        try:
            await self._membership.join()
        except BaseException:
            if self._membership.id:  # the server has let it in
                await self._membership.leave()
            raise
        self._polling.start(self._serve, self._queue_commit)

    async def disconnect(self) -> None:
        """Leave the group for now: its channels are lost, and what is not committed comes again.

        Raises:
            IllegalState: the subscriber is closed.
        """
        self._check_active()
        await self._membership.disconnect()

    # Closing

    def fail(self, error: KledgerError) -> None:
        """Fail all receives, and all later calls, with this error."""
        self._membership.failure = error
        self._requests.fail(error)
        self._polling.refresh()

    async def close(self) -> None:
        """Leave the group and close; receives that wait are cancelled. May be repeated."""
        await self._closing.run(self._close)

    async def _act(self, action: Callable[[], object]) -> None:
        """Run an action of `on_close`; what it raises stops no other."""
        try:
            returned = action()
            if asyncio.iscoroutine(returned):
                await returned
        except Exception:
            logger.exception("an action of closing the subscriber of %s raised", self._topic.name)

    async def _close(self) -> None:
        try:
            await self._polling.stop()
            self._requests.cancel()
            await self._commits.finish()
            await self._membership.close()
            for action in self._close_actions:
                await self._act(action)
        finally:
            self._on_closed(self)


def _offset_of(channel: object, position: object) -> int:
    """Return the offset of a position of the channel, else WRONG_POSITION."""
    if not isinstance(position, ChannelPosition) or position.channel != channel:
        return WRONG_POSITION
    return max(position.offset, NO_OFFSET)


def _targets(given: Mapping[int, ChannelPosition | int]) -> list[ChannelTarget]:
    """Return the targets of a seek. Raises IllegalArgument."""
    targets = []
    for channel, to in given.items():
        if isinstance(to, int) and not isinstance(to, bool) and abs(to) <= TIME_MS_MAX:
            targets.append(ChannelTarget(_numbers([channel])[0], TO_TIME, to))
        elif (offset := _offset_of(channel, to)) != WRONG_POSITION:
            targets.append(ChannelTarget(_numbers([channel])[0], TO_POSITION, offset))
        else:
            raise IllegalArgument(
                f"expected a position of channel {channel} or a time in ms, got {to!r}"
            )
    return targets


def check_count(given: object) -> None:
    """Check how many elements are wanted. Raises IllegalArgument."""
    if not isinstance(given, int) or given < 1:
        raise IllegalArgument(f"count: expected at least 1, got {given!r}")


def _is_number(given: object) -> TypeGuard[int]:
    """Return whether a channel could have that number."""
    return isinstance(given, int) and 0 <= given < CHANNEL_NUMBERS


def _numbers(channels: Iterable[object]) -> list[int]:
    """Return numbers of channels. Raises IllegalState for what cannot be one: it is not owned."""
    numbers = []
    for each in channels:
        if not _is_number(each):
            raise IllegalState(f"the subscriber does not own channel {each!r}")
        numbers.append(each)
    return numbers
