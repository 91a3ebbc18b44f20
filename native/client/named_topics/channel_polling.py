"""ChannelPolling: the task of a subscriber that polls the server ahead of its receives.

Rule: one poll is in flight, within a limit of bytes; what makes it outdated cancels it. A poll is
a heartbeat only if the application has received since the last one. A subscriber that is
disconnected joins again when a receive waits.
Must not know: what an application does with elements, seeks and commits.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from kledger.ledger import Position
from kledger.named_topics.model import (
    ChannelElements,
    ChannelFetch,
    ChannelPoll,
    ChannelPollResult,
)
from kledger.native.client.message_decoder import TINY_BYTES_MAX
from kledger.native.client.named_topics.element import Element, FailedElement, QueueCommit
from kledger.native.client.named_topics.expired_elements import ExpiredElements
from kledger.native.client.named_topics.membership import Membership
from kledger.native.client.named_topics.receive_requests import ReceiveRequests
from kledger.native.client.named_topics.subscriber_options import SubscriberOptions
from kledger.native.client.named_topics.subscriber_state import SubscriberState
from kledger.native.client.named_topics.topic_view import TopicOfChannels
from kledger.native.client.services import ClientServices
from kledger.native.errors import (
    KledgerError,
    SubscriberDisconnected,
    SubscriberGroupDestroyed,
    TopicNotFound,
    Unavailable,
    Unreadable,
)
from kledger.native.message import Message
from kledger.runtime.signal import Signal
from kledger.subscriptions.model import ALL, Delivery

POLL_WAIT_MS_MAX = 10_000


class ChannelPolling:
    """Of one subscriber."""

    def __init__(
        self,
        services: ClientServices,
        topic: TopicOfChannels,
        options: SubscriberOptions,
        *,
        state: SubscriberState,
        requests: ReceiveRequests,
        membership: Membership,
        expired: ExpiredElements,
    ) -> None:
        """Prepare; `start` begins to poll.

        Args:
            services: the client's.
            topic: that is polled.
            options: of the subscriber.
            state: gets what comes.
            requests: the receives that wait.
            membership: of the subscriber in its group.
            expired: gets the time of the server.
        """
        self._services = services
        self._topic = topic
        self._options = options
        self._state = state
        self._requests = requests
        self._membership = membership
        self._expired = expired
        self._serve: Callable[[], None]
        self._queue_commit: QueueCommit
        self._changed = Signal()
        """Ends a wait of the task: something else is to be asked now."""
        self._received_ms = services.clock.monotonic_ms()
        """When the application has received last."""
        self._reported_ms = self._received_ms
        """The same, as the server last got it."""
        self._under_way: _PollUnderWay | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, serve: Callable[[], None], queue_commit: QueueCommit) -> None:
        """Poll from now on.

        Args:
            serve: called when there are elements.
            queue_commit: of the elements that come.
        """
        self._serve, self._queue_commit = serve, queue_commit
        self._task = self._services.supervisor.spawn(
            self._run(), f"subscriber of {self._topic.name}"
        )

    async def stop(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def note_received(self) -> None:
        """Note that the application receives now."""
        self._received_ms = self._services.clock.monotonic_ms()

    def refresh(self) -> None:
        """Let the task look again; cancel a poll that asks for something outdated."""
        self._changed.notify()
        under_way = self._under_way
        if under_way is not None and self._is_outdated(under_way):
            under_way.task.cancel()

    def poll(self, fetches: Sequence[ChannelFetch], *, wait_ms: int) -> ChannelPoll:
        """Return a poll, which reports when the application has received last."""
        now_ms = self._services.clock.monotonic_ms()
        if self._requests.oldest is not None:
            self._received_ms = now_ms
        self._reported_ms = self._received_ms
        room = self._options.prefetched_bytes_max - self._state.buffered_bytes
        return ChannelPoll(
            group=self._membership.group,
            subscriber=self._membership.id,
            epoch=self._state.epoch,
            silent_ms=now_ms - self._received_ms,
            wait_ms=wait_ms,
            bytes_max=min(self._topic.options.page_bytes, max(room, 1)),
            fetches=tuple(fetches),
        )

    # The task

    async def _run(self) -> None:
        """Poll as long as the subscriber is open."""
        membership, requests = self._membership, self._requests
        while True:
            version = self._changed.version
            if membership.failure is not None:
                requests.fail(membership.failure)
            elif membership.is_connected:
                await self._poll_once()
                continue
            elif requests.oldest is not None and membership.may_join:
                try:
                    await membership.connect()
                except Exception as error:  # noqa: BLE001 - the receives raise it
                    requests.fail(error)
                continue
            await self._changed.wait_beyond(version)

    async def _poll_once(self) -> None:
        """Poll, and serve what comes; `refresh` may cancel the poll."""
        state, requests = self._state, self._requests
        is_waiting = requests.oldest is not None
        completes = is_waiting and self._options.completes_on_empty and not requests.is_held
        fetches = state.fetches() if self._has_room else ()
        poll = self.poll(fetches, wait_ms=0 if completes else self._wait_ms)
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
        self._expired.note_server_time(result.now_ms)
        if result.allocation is not None:
            self._membership.allocate(result.allocation)
        elif completes and not result.elements and (fetches or not state.channels):
            requests.complete_empty(received_before)
        for each in result.elements:
            await self._accept(each, generations[each.channel])
        self._serve()

    def _is_outdated(self, under_way: "_PollUnderWay") -> bool:
        """Four cases: disconnected; silent for too long; repositioned; room, or need, for more."""
        poll = under_way.poll
        if not self._membership.is_connected or self._needs_heartbeat:
            return True
        if self._requests.is_held:
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
        """Whether the next request must report that the application receives."""
        timeout_ms = self._topic.options.subscriber_timeout_ms
        unreported_ms = self._received_ms - self._reported_ms
        return bool(self._options.group) and 0 < timeout_ms <= 4 * unreported_ms

    @property
    def _wait_ms(self) -> int:
        """How long a poll waits: half of every time limit that it must meet, at most."""
        limits = [POLL_WAIT_MS_MAX, self._services.operations.timeout_ms // 2]
        if self._topic.options.subscriber_timeout_ms:
            limits.append(self._topic.options.subscriber_timeout_ms // 2)
        return max(1, min(limits))

    async def _polled(self, poll: ChannelPoll) -> ChannelPollResult | None:
        """Poll once; None: the subscriber is disconnected now."""
        membership = self._membership
        try:
            return await self._services.broker.poll_channels(self._topic.name, poll)
        except (SubscriberGroupDestroyed, TopicNotFound) as error:
            membership.failure = error
        except (SubscriberDisconnected, Unavailable):
            pass
        except KledgerError as error:
            self._requests.fail(error)
        membership.disconnected()
        return None

    async def _accept(self, fetched: ChannelElements, generation: int) -> None:
        """Decode and buffer the elements of one channel."""
        channel, start_offset, commit = fetched.channel, fetched.start_offset, self._queue_commit
        elements: list[Element] = []
        for batch in fetched.batches:
            try:
                messages = await self._decode(batch, channel)
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
        if fetched.failures:
            elements += [
                FailedElement(channel, generation, each, commit) for each in fetched.failures
            ]
            elements.sort(key=attrgetter("offset"))
        self._state.accept(channel, generation, elements, fetched.next_offset)

    async def _decode(self, batch: bytes, channel: int) -> list[Message]:
        """Decode one batch, in a tick of its own unless it is tiny.

        Two large ones exceed the decoder's budget of a tick; it would begin the second one in vain,
        and pass it to a thread, where it takes twice as long.
        """
        if len(batch) > TINY_BYTES_MAX:
            await self._services.clock.sleep(0)
        return await self._services.decoder.decode(
            Delivery(Position(0, 0), batch, ALL, 0),
            topic=self._topic.name,
            partition=channel,
            link=None,
        )


class _PollUnderWay(NamedTuple):
    """A poll that the server has not answered, and the generations that it was made in."""

    task: "asyncio.Task[ChannelPollResult | None]"
    poll: ChannelPoll
    generations: Mapping[int, int]
