"""Publisher: sends values to the channels of a named topic.

Rule: values of one channel are stored in the order of their publishes. The batches are those of an
idempotent producer, so that a lost connection stores none twice. After a failure a publisher stops,
as otherwise later values would be stored without it, unless `on_failure` is "continue".
Must not know: whether the server runs in this process.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kledger.named_topics.model import NO_LIMIT
from kledger.native.channel_position import ChannelPosition
from kledger.native.client.close_once import CloseOnce, ClosesOnExit
from kledger.native.client.named_topics.flow_control import FlowControl
from kledger.native.client.named_topics.order_by import Orderable, OrderBy, checked_id
from kledger.native.client.named_topics.topic_view import TopicOfChannels
from kledger.native.client.producer import Producer
from kledger.native.client.services import ClientServices
from kledger.native.errors import IllegalArgument, IllegalState, KledgerError, TopicFull
from kledger.native.message_id import MessageId
from kledger.runtime.signal import Signal

ROOM_WAIT_MS_MAX = 10_000
STOP, CONTINUE = "stop", "continue"


class PublishStatus(NamedTuple):
    """Where a published value is."""

    channel: int
    position: ChannelPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherOptions:
    """How a publisher sends.

    Attributes:
        order_by: decides the channel.
        stops_on_failure: it closes after the first publish that fails.
        fails_on_full: a publish fails if the topic is full, instead of waiting.
        serializer: makes the stored bytes of a value; None: values are bytes.
    """

    order_by: OrderBy
    stops_on_failure: bool
    fails_on_full: bool
    serializer: Callable[[Any], bytes] | None


class Publisher(ClosesOnExit):
    """Made by `NamedTopic.create_publisher`; also an asynchronous context manager."""

    def __init__(
        self,
        services: ClientServices,
        topic: TopicOfChannels,
        producer: Producer,
        options: PublisherOptions,
        on_closed: Callable[["Publisher"], None],
    ) -> None:
        """Args: on_closed: called when it is closed."""
        self.flow_control = FlowControl()
        self._services = services
        self._topic = topic
        self._producer = producer
        self._options = options
        self._choose_id = options.order_by.make(services.entropy)
        self._on_closed = on_closed
        self._closing = CloseOnce(services.supervisor, f"publisher of {topic.name}")
        self._failure: KledgerError | None = None
        self._begun = 0
        """How many publishes there have been."""
        self._outstanding: dict[int, None] = {}
        """The numbers of those that have not ended, ascending."""
        self._ended = Signal()
        self._is_limited = topic.options.max_unconsumed_bytes != NO_LIMIT
        self._channel_locks: dict[int, asyncio.Lock] = {}
        self._waiting_for_room: dict[asyncio.Task[KledgerError | None], None] = {}

    @property
    def named_topic(self) -> TopicOfChannels:
        """The topic."""
        return self._topic

    @property
    def channel_count(self) -> int:
        """How many channels it sends to."""
        return self._producer.partition_count

    @property
    def is_active(self) -> bool:
        """Whether it was neither closed nor stopped by a failure."""
        return not self._closing.has_begun and self._failure is None

    async def publish(self, value: Any) -> PublishStatus:
        """Publish one value; return its position when it is durable.

        If the caller is cancelled, the value may be stored or not.

        Raises:
            IllegalState: the publisher is closed, or a failure has stopped it.
            IllegalArgument: the value is not bytes, or the server refuses it.
            TopicFull: the topic has no room, and the publisher does not wait for it, or is closed
                meanwhile.
            TopicNotFound: the topic was destroyed.
            Unavailable: the server cannot be reached, or cannot write.
        """
        if self._failure is not None or self._closing.has_begun:
            self._check_active()
        if type(value) is bytes and self._options.serializer is None:
            data, order_id = value, self._choose_id(value)
        else:
            data, order_id = self._stored_form(value), self._order_id_of(value)
        channel = order_id % self._producer.partition_count
        self._begun += 1
        number = self._begun
        self._outstanding[number] = None
        flow_control = self.flow_control
        try:
            if not flow_control.try_enter():
                await flow_control.enter()
                self._check_not_stopped()
            try:
                if self._is_limited:
                    sent = await self._send_when_there_is_room(channel, data)
                else:
                    sent = await self._producer.send_to(channel, data)
            except KledgerError as error:
                if self._options.stops_on_failure:
                    self._stop(error)
                raise
            finally:
                flow_control.leave()
        finally:
            del self._outstanding[number]
            if self._ended.waiter_count:
                self._ended.notify()
        assert sent.offset is not None, "the id of a sent message has an offset"
        return PublishStatus(channel, ChannelPosition(channel, sent.offset))

    async def _send_when_there_is_room(self, channel: int, data: bytes) -> MessageId:
        """Send a value to a topic with a capacity, one at a time to each channel.

        So a value that was refused, and is sent again when there is room, is not overtaken. A
        publisher that is closed sends what was published before, but waits for no more room.
        """
        async with self._channel_locks.setdefault(channel, asyncio.Lock()):
            while True:
                self._check_not_stopped()
                try:
                    return await self._producer.send_to(channel, data)
                except TopicFull:
                    if self._options.fails_on_full or self._closing.has_begun:
                        raise
                await self._wait_for_room(len(data))

    async def _wait_for_room(self, size: int) -> None:
        """Wait for a while, or until the publisher is closed."""
        waiting = self._services.supervisor.spawn(
            self._asked_for_room(size), f"room in {self._topic.name}"
        )
        self._waiting_for_room[waiting] = None
        try:
            await asyncio.wait([waiting])
        finally:
            del self._waiting_for_room[waiting]
            waiting.cancel()
        error = None if waiting.cancelled() else waiting.result()
        if error is not None:
            raise error

    async def _asked_for_room(self, size: int) -> KledgerError | None:
        try:
            await self._services.broker.wait_for_room(self._topic.name, size, self._room_wait_ms)
        except KledgerError as error:
            return error
        return None

    @property
    def _room_wait_ms(self) -> int:
        return min(ROOM_WAIT_MS_MAX, self._services.operations.timeout_ms // 2)

    async def flush(self) -> None:
        """Return when all earlier publishes have ended; their callers get the errors."""
        last = self._begun
        while self._outstanding and next(iter(self._outstanding)) <= last:
            await self._ended.wait()

    def fail(self, error: KledgerError) -> None:
        """Fail everything that is outstanding, and all later publishes."""
        self._failure = error
        self._producer.fail(error)

    async def close(self) -> None:
        """Wait for outstanding publishes, and close. May be repeated."""
        await self._closing.run(self._close)

    async def _close(self) -> None:
        try:
            for each in self._waiting_for_room:
                each.cancel()
            await self.flush()
            await self._producer.close()
        finally:
            self._on_closed(self)

    def _check_not_stopped(self) -> None:
        if self._failure is not None:
            raise IllegalState(
                f"the publisher of {self._topic.name} was stopped by a failure: {self._failure}"
            )

    def _check_active(self) -> None:
        self._check_not_stopped()
        if self._closing.has_begun:
            raise IllegalState(f"the publisher of {self._topic.name} is closed")

    def _stop(self, error: KledgerError) -> None:
        """Fail what is outstanding and close."""
        if self._failure is None:
            self.fail(error)
            self._services.supervisor.spawn(self.close(), "closing of a stopped publisher")

    def _stored_form(self, value: Any) -> bytes:
        data = value if self._options.serializer is None else self._options.serializer(value)
        if type(data) is bytes:
            return data
        if not isinstance(data, bytes | bytearray | memoryview):
            raise IllegalArgument(f"value: expected bytes, got {type(data).__name__}")
        return bytes(data)

    def _order_id_of(self, value: Any) -> int:
        return (
            checked_id(value.order_id()) if isinstance(value, Orderable) else self._choose_id(value)
        )
