"""Subscriber: receives the elements of the channels that it owns, commits and seeks.

Rule: receives complete strictly in their order. One task polls the server ahead of them, within a
limit of bytes; a poll is a heartbeat only if the application has received since the last one. A
request about positions runs alone: no receive is served until it ends, and what was pre-fetched of
the channels that it moves is dropped. A subscriber that is disconnected, by a timeout, a lost
connection or the application, loses its channels; the next receive, commit or seek joins again.
Must not know: whether the server runs in this process.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard, TypeVar, overload

from kledger.ledger import Position
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
    ChannelAllocation,
    ChannelCommit,
    ChannelElements,
    ChannelEnds,
    ChannelFetch,
    ChannelPoll,
    ChannelPollResult,
    ChannelTarget,
    CommitOutcome,
    CommitRequest,
    SeekRequest,
    SubscriberJoin,
)
from kledger.native.channel_position import ChannelPosition
from kledger.native.client.close_once import CloseOnce, ClosesOnExit
from kledger.native.client.named_topics.commit_queue import CommitQueue, PendingCommit
from kledger.native.client.named_topics.element import CommitResult, Element
from kledger.native.client.named_topics.flow_control import FlowControl
from kledger.native.client.named_topics.functions import (
    Function,
    GroupFunction,
    load_function,
)
from kledger.native.client.named_topics.ownership_listeners import (
    ASSIGNED,
    LOST,
    REVOKED,
    OwnershipListeners,
)
from kledger.native.client.named_topics.receive_requests import Received, ReceiveRequests
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
    TopicNotFound,
    Unavailable,
    Unreadable,
)
from kledger.runtime.signal import Signal
from kledger.subscriptions.model import ALL, Delivery

logger = logging.getLogger(__name__)

PREFETCHED_BYTES_MAX = 8 << 20
"""What a subscriber holds of elements that were not received, but for one poll."""
POLL_WAIT_MS_MAX = 10_000
RECONNECT_TIMEOUT_MS = 300_000
"""How long a subscriber tries to join again before its receives fail."""
CHANNEL_NUMBERS = 1 << 31
TIME_MS_MAX = (1 << 62) - 1

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberOptions:
    """How a subscriber receives.

    Attributes:
        group: its name; empty: an anonymous subscriber.
        completes_on_empty: a receive on an empty topic ends with nothing, instead of waiting.
        filter: of elements; those for which it returns something false are skipped.
        converter: of values; an element for which it returns None is skipped.
        listeners: called when the ownership of channels changes.
        deserializer: makes a value of the stored bytes.
        prefetched_bytes_max: see PREFETCHED_BYTES_MAX.
        reconnect_timeout_ms: see RECONNECT_TIMEOUT_MS.
    """

    group: str
    completes_on_empty: bool
    filter: GroupFunction
    converter: GroupFunction
    listeners: tuple[object, ...]
    deserializer: Function | None
    prefetched_bytes_max: int = PREFETCHED_BYTES_MAX
    reconnect_timeout_ms: int = RECONNECT_TIMEOUT_MS


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
        self._on_closed = on_closed
        self._closing = CloseOnce(services.supervisor, f"subscriber of {topic.name}")
        self._close_actions: list[Callable[[], object]] = []
        self._state = SubscriberState()
        self._requests = ReceiveRequests()
        self._commits = CommitQueue(self._send_commits, services.supervisor)
        self._listeners = OwnershipListeners(options.listeners, services.supervisor)
        self._filter = options.filter.function
        self._converter = options.converter.function
        self._has_no_functions = False
        self._id = 0
        self._group = options.group
        self._is_connected = False
        self._was_disconnected = False
        """The application has disconnected it, and not received since."""
        self._failure: KledgerError | None = None
        self._connecting = asyncio.Lock()
        self._exclusive = asyncio.Lock()
        self._exclusive_count = 0
        self._changed = Signal()
        """Ends a wait of the polling task: something else is to be asked now."""
        self._received_ms = services.clock.monotonic_ms()
        """When the application has received last."""
        self._reported_ms = self._received_ms
        """The same as far as the server knows."""
        self._under_way: _PollUnderWay | None = None
        self._task: asyncio.Task[None] | None = None

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
        return self._id

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
        if self._failure is not None:
            raise self._failure
        if not self.flow_control.try_enter():
            await self.flow_control.enter()
        try:
            self._check_active()
            self._was_disconnected = False
            self._received_ms = self._services.clock.monotonic_ms()
            request = self._requests.add(count)
            self._serve()
            self._refresh()
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
        while not self._exclusive_count and (request := self._requests.oldest) is not None:
            try:
                found = self._take(request.count)
            except Exception as error:  # noqa: BLE001 - the application's own, and for it
                request.outcome.set_exception(error)
                continue
            if not found:
                break
            self._requests.serve(request, found)
            self._received_ms = self._services.clock.monotonic_ms()

    def _take(self, count: int) -> Received:
        """Take elements; one that raises is skipped if it is the first, and else stays."""
        if self._has_no_functions:
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
        """Set the value of an element; return False if filter or converter skip it."""
        value: Any = element.binary_value
        if self._options.deserializer is not None and value is not None:
            value = self._options.deserializer(value)
        if self._filter is not None and not self._filter(value):
            return False
        if self._converter is not None:
            value = self._converter(value)
            if value is None:
                return False
        element.value = value
        return True

    async def heartbeat(self) -> None:
        """Tell the server that the application is alive, though it does not receive now.

        Raises:
            IllegalState: the subscriber is closed.
            Unavailable: the server cannot be reached.
        """
        self._check_active()
        if self._options.group and self._is_connected:
            self._received_ms = self._services.clock.monotonic_ms()
            with suppress(SubscriberDisconnected, SubscriberGroupDestroyed):  # the poll says so
                await self._services.broker.poll_channels(
                    self._topic.name, self._poll((), wait_ms=0)
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
            commits = []
            for channel, offset, _ in pending:
                mark = self._state.read_mark(channel)
                commits.append(ChannelCommit(channel, offset, mark.offset, mark.revision))
            outcomes = await self._services.broker.commit_channels(
                self._topic.name, CommitRequest(self._group, self._id, tuple(commits))
            )
            self._drop_committed(commits, outcomes)
            return outcomes

        while True:
            try:
                return await self._retrying(send)
            except SubscriberDisconnected as error:
                if self._was_disconnected or self._closing.has_begun:  # it does not join again
                    rejected = CommitOutcome(REJECTED, ILLEGAL_STATE, str(error))
                    return [rejected] * len(pending)
                self._on_disconnected()
            except SubscriberGroupDestroyed as error:
                return [CommitOutcome(REJECTED, ILLEGAL_STATE, str(error))] * len(pending)
            await self._connect()

    def _drop_committed(
        self, commits: Sequence[ChannelCommit], outcomes: Sequence[CommitOutcome]
    ) -> None:
        for commit, outcome in zip(commits, outcomes, strict=True):
            if outcome.status in {COMMITTED, ALREADY_COMMITTED}:
                self._state.committed(commit.channel, commit.offset, commit.revision)

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
            request = SeekRequest(self._group, self._id, is_committing, tuple(targets))
            try:
                outcomes = await self._asking(
                    lambda: self._services.broker.seek_channels(self._topic.name, request)
                )
            except (IllegalState, IllegalArgument):
                raise  # nothing has moved
            except BaseException:  # it may have moved: the next receive joins again
                self._on_disconnected()
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
                self._topic.name, self._group, self._id, channel
            )
        )

    # Asking

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Run the body alone: requests in their order, receives are served behind them."""
        self._check_active()
        self._exclusive_count += 1
        try:
            async with self._exclusive:
                if self._failure is not None:
                    raise self._failure
                await self._connect()
                yield
        finally:
            self._exclusive_count -= 1
            self._serve()
            self._refresh()

    async def _asking(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask the server; join again, once, if it has forgotten the subscriber."""
        try:
            return await self._retrying(ask)
        except SubscriberDisconnected:
            self._on_disconnected()
            await self._connect()
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
            await self._join()
        except BaseException:
            if self._id:  # the server has let it in
                with suppress(KledgerError):
                    await self._leave()
            raise
        self._task = self._services.supervisor.spawn(
            self._run(), f"subscriber of {self._topic.name}"
        )

    async def disconnect(self) -> None:
        """Leave the group for now: its channels are lost, and what is not committed comes again.

        Raises:
            IllegalState: the subscriber is closed.
        """
        self._check_active()
        self._was_disconnected = True
        if self._is_connected:
            self._on_disconnected()
            if self._options.group:  # an anonymous group would end
                with suppress(KledgerError):  # else it times out
                    await self._leave()

    async def _leave(self) -> None:
        await self._services.broker.leave_subscriber(self._topic.name, self._group, self._id)

    async def _join(self) -> None:
        options = self._options
        allocation = await self._services.broker.join_subscriber(
            self._topic.name,
            SubscriberJoin(options.group, self._id, options.filter.name, options.converter.name),
        )
        self._id, self._group = allocation.subscriber, allocation.group
        self._filter = options.filter.function or _loaded("filter", allocation.filter_name)
        self._converter = options.converter.function or _loaded(
            "converter", allocation.converter_name
        )
        functions = (options.deserializer, self._filter, self._converter)
        self._has_no_functions = functions == (None, None, None)
        self._is_connected, self._was_disconnected = True, False
        self._reported_ms = self._services.clock.monotonic_ms()
        self._allocate(allocation)

    async def _connect(self) -> None:
        """Join again if it is disconnected. Raises the error of the last attempt."""
        async with self._connecting:
            if not self._is_connected and not self._closing.has_begun:
                try:
                    await open_with_retries(
                        self._services,
                        self._join,
                        is_first=False,
                        retry_ms=self._options.reconnect_timeout_ms,
                    )
                except (SubscriberGroupDestroyed, TopicNotFound) as error:
                    self._failure = error
                    raise

    def _allocate(self, allocation: ChannelAllocation) -> None:
        change = self._state.allocate(allocation)
        if change.revoked:
            self._listeners.call(REVOKED, change.revoked)
        if change.is_changed:
            self._listeners.call(ASSIGNED, self._state.channels)

    def _on_disconnected(self) -> None:
        self._is_connected = False
        lost = self._state.disconnect()
        if lost:
            self._listeners.call(LOST, lost)
        self._refresh()

    # Polling

    async def _run(self) -> None:
        """Poll as long as the subscriber is open."""
        while True:
            version = self._changed.version
            if self._failure is not None:
                self._requests.fail(self._failure)
            elif self._is_connected:
                await self._poll_once()
                continue
            elif self._requests.oldest is not None and not self._closing.has_begun:
                try:
                    await self._connect()
                except Exception as error:  # noqa: BLE001 - the receives raise it
                    self._requests.fail(error)
                continue
            await self._changed.wait_beyond(version)

    async def _poll_once(self) -> None:
        """Poll, and serve what comes; `_refresh` may cancel the poll."""
        state, requests = self._state, self._requests
        is_waiting = requests.oldest is not None
        completes = is_waiting and self._options.completes_on_empty and not self._exclusive_count
        fetches = state.fetches() if self._has_room else ()
        poll = self._poll(fetches, wait_ms=0 if completes else self._wait_ms)
        generations, received_before = state.generations(), requests.count
        task = self._services.supervisor.spawn(self._polled(poll), f"poll of {self._topic.name}")
        self._under_way = _PollUnderWay(task, poll, generations)
        try:
            await asyncio.wait([task])
        finally:
            self._under_way = None
            task.cancel()
        result = None if task.cancelled() else task.result()
        if result is None or poll.epoch != state.epoch:
            return
        if result.allocation is not None:
            self._allocate(result.allocation)
        elif completes and not result.elements and (fetches or not state.channels):
            requests.complete_empty(received_before)
        for each in result.elements:
            await self._accept(each, generations[each.channel])
        self._serve()

    def _refresh(self) -> None:
        """Let the polling task look again; cancel a poll that asks for something outdated."""
        self._changed.notify()
        under_way = self._under_way
        if under_way is not None and self._is_outdated(under_way):
            under_way.task.cancel()

    def _is_outdated(self, under_way: "_PollUnderWay") -> bool:
        """Four cases: disconnected; silent for too long; repositioned; room, or need, for more."""
        poll = under_way.poll
        if not self._is_connected or self._needs_heartbeat:
            return True
        if self._exclusive_count:
            return False
        if under_way.generations != self._state.generations():
            return True
        if not poll.fetches and self._state.channels:
            return self._state.buffered_bytes <= self._options.prefetched_bytes_max // 2
        is_waiting = self._requests.oldest is not None
        return self._options.completes_on_empty and is_waiting and poll.wait_ms > 0

    @property
    def _has_room(self) -> bool:
        """Whether more is pre-fetched."""
        return self._state.buffered_bytes < self._options.prefetched_bytes_max

    @property
    def _needs_heartbeat(self) -> bool:
        """Whether the server should hear now that the application receives."""
        timeout_ms = self._topic.options.subscriber_timeout_ms
        unreported_ms = self._received_ms - self._reported_ms
        return bool(self._options.group) and 0 < timeout_ms <= 4 * unreported_ms

    def _poll(self, fetches: Sequence[ChannelFetch], *, wait_ms: int) -> ChannelPoll:
        """Return a poll, which reports when the application has received last."""
        now_ms = self._services.clock.monotonic_ms()
        if self._requests.oldest is not None:
            self._received_ms = now_ms
        self._reported_ms = self._received_ms
        room = self._options.prefetched_bytes_max - self._state.buffered_bytes
        return ChannelPoll(
            group=self._group,
            subscriber=self._id,
            epoch=self._state.epoch,
            silent_ms=now_ms - self._received_ms,
            wait_ms=wait_ms,
            bytes_max=min(self._topic.options.page_bytes, max(room, 1)),
            fetches=tuple(fetches),
        )

    @property
    def _wait_ms(self) -> int:
        """How long a poll waits: half of every time limit that it must meet, at most."""
        limits = [POLL_WAIT_MS_MAX, self._services.operations.timeout_ms // 2]
        if self._topic.options.subscriber_timeout_ms:
            limits.append(self._topic.options.subscriber_timeout_ms // 2)
        return max(1, min(limits))

    async def _polled(self, poll: ChannelPoll) -> ChannelPollResult | None:
        """Poll once; None: the subscriber is disconnected now."""
        try:
            return await self._services.broker.poll_channels(self._topic.name, poll)
        except (SubscriberGroupDestroyed, TopicNotFound) as error:
            self._failure = error
            self._on_disconnected()
        except (SubscriberDisconnected, Unavailable):
            self._on_disconnected()
        except KledgerError as error:
            self._requests.fail(error)
            self._on_disconnected()
        return None

    async def _accept(self, fetched: ChannelElements, generation: int) -> None:
        """Decode and buffer the elements of one channel."""
        channel, start_offset, commit = fetched.channel, fetched.start_offset, self._queue_commit
        elements: list[Element] = []
        for batch in fetched.batches:
            try:
                messages = await self._services.decoder.decode(
                    Delivery(Position(0, 0), batch, ALL, 0),
                    topic=self._topic.name,
                    partition=channel,
                    link=None,
                )
            except Unreadable as error:  # the batch is damaged: the next ones may not be
                self._requests.fail(error)
                continue
            elements += [
                Element(
                    channel, generation, each.offset, each.publish_timestamp, each.value, commit
                )
                for each in messages
                if each.offset >= start_offset
            ]
        self._state.accept(fetched.channel, generation, elements, fetched.next_offset)

    # Closing

    def fail(self, error: KledgerError) -> None:
        """Fail all receives, and all later calls, with this error."""
        self._failure = error
        self._requests.fail(error)
        self._refresh()

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
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
            self._requests.cancel()
            await self._commits.finish()
            # An anonymous one did not leave when the application disconnected it; one that has lost
            # its server does not wait for it, and is ended by the server after a while.
            if self._is_connected or (self._was_disconnected and not self._options.group):
                self._is_connected = False
                with suppress(KledgerError):  # else it times out
                    await self._leave()
            self._state.disconnect()
            await self._listeners.finish()
            for action in self._close_actions:
                await self._act(action)
        finally:
            self._on_closed(self)


class _PollUnderWay(NamedTuple):
    """A poll that the server has not answered, and the generations that it was made in."""

    task: "asyncio.Task[ChannelPollResult | None]"
    poll: ChannelPoll
    generations: Mapping[int, int]


def _loaded(what: str, name: str) -> Function | None:
    return load_function(what, name) if name else None


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
