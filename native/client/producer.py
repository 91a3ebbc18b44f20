"""Producer: sends messages to a topic.

Rule: a send that returns is as durable as the server promises; messages of one partition are stored
in the order of their sends.
Must not know: links.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from kledger.native.broker import TopicInfo
from kledger.native.client.close_once import CloseOnce, ClosesOnExit
from kledger.native.client.message_encoder import (
    OutgoingMessage,
    copied_message,
    outgoing_message,
    plain_message,
)
from kledger.native.client.partition_producer import PartitionProducer, fail
from kledger.native.client.partition_set import close_all, open_all, watch_partitions
from kledger.native.client.partitioner import StickyPartitioner
from kledger.native.client.send_window_state import SendWindow
from kledger.native.client.services import ClientServices
from kledger.native.errors import AlreadyClosed, Full, KledgerError
from kledger.native.message import Message
from kledger.native.message_id import MessageId


class Producer(ClosesOnExit):
    """Made by `Client.create_producer`; also an asynchronous context manager."""

    def __init__(
        self,
        services: ClientServices,
        topic: TopicInfo,
        *,
        producer_name: str | None,
        batching: bool,
        max_pending: int,
        on_closed: Callable[["Producer"], None],
    ) -> None:
        """Args: on_closed: called when this producer is closed."""
        self._services = services
        self._topic = topic.name
        self._name = producer_name
        self._is_batching = batching
        self._closing = CloseOnce(services.supervisor, f"producer of {topic.name}")
        self._failure: KledgerError | None = None
        self._on_closed = on_closed
        self._new_outcome: Callable[[], asyncio.Future[MessageId]] = (
            asyncio.get_running_loop().create_future
        )
        self._window: SendWindow[OutgoingMessage] = SendWindow(max_pending)
        first = services.entropy.below(topic.partition_count)
        self._partitioner = StickyPartitioner(topic.partition_count, first=first)
        self._partitions = [self._partition(each) for each in range(topic.partition_count)]
        self._watch: asyncio.Task[None] | None = None

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        return self._topic

    @property
    def producer_name(self) -> str | None:
        """The name given by the application, or None."""
        return self._name

    async def open(self) -> None:
        """Connect to all partitions; only for `Client`."""
        await open_all(self._partitions)
        self._watch = self._services.supervisor.spawn(
            watch_partitions(
                self._services, self._topic, len(self._partitions), self._add_partitions
            ),
            f"partitions of {self._topic}",
        )

    async def send(
        self,
        value: bytes | None,
        *,
        key: bytes | str | None = None,
        properties: Mapping[str, str] | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after_ms: int | None = None,
        sequence_id: int | None = None,
    ) -> MessageId:
        """Send one message; return its id, with its `offset`, when it is durable.

        If the caller is cancelled, the message may be stored or not.

        Args:
            value: None makes a tombstone.
            key: decides the partition, as with Kafka; text is stored as UTF-8.
            properties: become headers.
            event_timestamp: in ms; becomes the record's timestamp instead of the current time.
            deliver_at: shared subscriptions deliver the message at this time in ms, not earlier.
            deliver_after_ms: the same, counted from now.
            sequence_id: a number that consumers read as `Message.sequence_id`.

        Raises:
            InvalidArgument: an argument is wrong, or the server refuses the message.
            TopicTerminated: the topic accepts no more messages.
            Unavailable: the server cannot be reached, or cannot write.
            AlreadyClosed: the producer was closed.
        """
        message = self._message(
            value, key, properties, event_timestamp, deliver_at, deliver_after_ms, sequence_id
        )
        return await self._enqueue(message)

    def send_nowait(
        self,
        value: bytes | None,
        *,
        key: bytes | str | None = None,
        properties: Mapping[str, str] | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after_ms: int | None = None,
        sequence_id: int | None = None,
    ) -> "asyncio.Future[MessageId]":
        """Queue one message behind all earlier ones; return at once. The arguments are `send`'s.

        Returns:
            A future of the id. If it is cancelled before the message leaves, nothing is sent.

        Raises:
            Full: `max_pending` messages, or 64 MiB, are in flight; nothing was sent.
            InvalidArgument, AlreadyClosed, KledgerError: as `send`, if known at once.
        """
        message = self._message(
            value, key, properties, event_timestamp, deliver_at, deliver_after_ms, sequence_id
        )
        self._check_open()
        if not self._window.try_enter(message.size):
            raise Full(f"producer of {self._topic} has {self._window} in flight")
        self._admit(message)
        return message.outcome

    async def send_again(self, message: Message, properties: Mapping[str, str]) -> MessageId:
        """Send a received message to this topic, with more properties."""
        again = copied_message(
            message,
            properties,
            outcome=self._new_outcome(),
            now_ms=self._services.clock.now_ms(),
        )
        return await self._enqueue(again)

    @property
    def partition_count(self) -> int:
        """How many partitions it sends to."""
        return len(self._partitions)

    def send_to(self, partition: int, value: bytes) -> "asyncio.Future[MessageId]":
        """Queue one message without a key for a partition, however many are in flight.

        Returns:
            A future of the id; see `send`.

        Raises:
            InvalidArgument, AlreadyClosed, KledgerError: as `send`, if known at once.
        """
        assert self._name is None, "a publisher's producer has no name that messages would carry"
        now_ms = self._services.clock.now_ms()
        return self._enqueue(plain_message(value, None, self._new_outcome(), now_ms, partition))

    async def flush(self) -> None:
        """Return when all earlier sends have ended; their callers get the errors."""
        unfinished = [each.outcome for each in self._window.waiting if not each.outcome.done()]
        for partition in self._partitions:
            unfinished += partition.unfinished
        if unfinished:
            await asyncio.wait(unfinished)

    def fail(self, error: KledgerError) -> None:
        """Fail all pending sends, and all later ones, with this error."""
        self._failure = error
        fail(self._window.waiting, error)
        for partition in self._partitions:
            partition.fail(error)

    async def close(self) -> None:
        """Flush and close; may be repeated."""
        await self._closing.run(self._close)

    async def _close(self) -> None:
        try:
            await self.flush()
        finally:
            if self._watch is not None:
                self._watch.cancel()
            fail(self._window.waiting, AlreadyClosed(f"producer of {self._topic} is closed"))
            try:
                await close_all(self._partitions)
            finally:
                self._on_closed(self)

    def _message(  # noqa: PLR0917 - called for every message, and faster without names
        self,
        value: bytes | None,
        key: bytes | str | None,
        properties: Mapping[str, str] | None,
        event_timestamp: int | None,
        deliver_at: int | None,
        deliver_after_ms: int | None,
        sequence_id: int | None,
    ) -> OutgoingMessage:
        now_ms = self._services.clock.now_ms()
        if (
            self._name is None
            and not properties
            and event_timestamp is None
            and deliver_at is None
            and deliver_after_ms is None
            and sequence_id is None
        ):
            return plain_message(value, key, self._new_outcome(), now_ms)
        return outgoing_message(
            value, key=key, properties=properties, event_timestamp=event_timestamp,
            deliver_at=deliver_at, deliver_after_ms=deliver_after_ms, sequence_id=sequence_id,
            producer_name=self._name, outcome=self._new_outcome(), now_ms=now_ms,
        )  # fmt: skip

    def _enqueue(self, message: OutgoingMessage) -> "asyncio.Future[MessageId]":
        """Queue a message, however many are in flight."""
        self._check_open()
        if self._window.enter(message, message.size):
            self._admit(message)
        return message.outcome

    def _check_open(self) -> None:
        if self._closing.has_begun:
            raise AlreadyClosed(f"producer of {self._topic} is closed")
        if self._failure is not None:
            raise self._failure

    def _admit(self, message: OutgoingMessage) -> None:
        partition = message.partition
        if partition is None:
            partition = self._partitioner.choose(message.key)
        self._partitions[partition].add(message)

    def _on_finished(self, finished: Sequence[OutgoingMessage]) -> None:
        size = sum([each.size for each in finished])
        for admitted in self._window.leave(len(finished), size):
            self._admit(admitted)

    def _partition(self, index: int) -> PartitionProducer:
        return PartitionProducer(
            self._services,
            self._topic,
            index,
            name=self._name or "",
            is_batching=self._is_batching,
            on_finished=self._on_finished,
            on_batch_taken=self._partitioner.note_batch_taken,
        )

    async def _add_partitions(self, new: range) -> None:
        added = [self._partition(each) for each in new]
        await open_all(added)
        self._partitions += added
        self._partitioner.set_partition_count(len(self._partitions))
