"""Producer: sends messages to a topic.

Rule: a send that returns is as durable as the server promises; messages of one partition, sent one
after the other by one program, are stored in that order.
Must not know: how a batch travels.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from kledger.native.client_services import ClientServices
from kledger.native.closing import ClosedOnLeaving, Closing
from kledger.native.errors import AlreadyClosed, Full, KledgerError
from kledger.native.message import Message
from kledger.native.message_codec import Outgoing, outgoing, resent
from kledger.native.message_id import MessageId
from kledger.native.open_together import close_all, open_all
from kledger.native.partition_choice import PartitionChoice
from kledger.native.partition_producer import PartitionProducer, Pending, fail
from kledger.native.partition_watch import watch_partitions
from kledger.native.seam import TopicInfo
from kledger.native.send_window_state import SendWindow


class Producer(ClosedOnLeaving):
    """Made by `Client.create_producer`; also an asynchronous context manager."""

    def __init__(
        self,
        services: ClientServices,
        topic: TopicInfo,
        *,
        producer_name: str | None,
        batching: bool,
        max_pending: int,
        closed: Callable[["Producer"], None],
    ) -> None:
        """Args: closed: told when this one is."""
        self._services = services
        self._topic = topic.name
        self._name = producer_name
        self._is_batching = batching
        self._closing = Closing(services.supervisor, f"producer of {topic.name}")
        self._failure: KledgerError | None = None
        self._told_closed = closed
        self._window: SendWindow[Pending] = SendWindow(max_pending)
        first = services.entropy.below(topic.partition_count)
        self._choice = PartitionChoice(topic.partition_count, first=first)
        self._partitions = [self._partition(each) for each in range(topic.partition_count)]
        self._watch: asyncio.Task[None] | None = None

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        return self._topic

    @property
    def producer_name(self) -> str | None:
        """What it was called."""
        return self._name

    async def open(self) -> None:
        """Connect to all partitions; only for `Client`."""
        await open_all(self._partitions)
        self._watch = self._services.supervisor.spawn(
            watch_partitions(self._services, self._topic, len(self._partitions), self._grow),
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

        When the caller is cancelled, the message may have been sent or not.

        Args:
            value: None makes a tombstone.
            key: decides the partition, as with Kafka; text is stored as UTF-8.
            properties: become headers.
            event_timestamp: when it happened, in ms; the record's timestamp in place of now.
            deliver_at: shared subscriptions hand it out at this time in ms, not earlier.
            deliver_after_ms: the same, counted from now.
            sequence_id: a number of the producer's own, for those who read it.

        Raises:
            InvalidArgument: something cannot be, or the server refuses the message.
            TopicTerminated: nothing can be added any more.
            Unavailable: the server cannot be reached, or cannot write.
            AlreadyClosed: the producer was closed.
        """
        message = outgoing(
            value, key=key, properties=properties, event_timestamp=event_timestamp,
            deliver_at=deliver_at, deliver_after_ms=deliver_after_ms, sequence_id=sequence_id,
            producer_name=self._name, now_ms=self._services.clock.now_ms(),
        )  # fmt: skip
        pending = self._pending(message)
        if self._window.enter(pending, message.size):
            self._admit(pending)
        return await pending.outcome

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
        """Send one message behind all that were sent before; return at once.

        Returns:
            What becomes of it. Cancelled before the message has left, it is not sent.

        Raises:
            Full: `max_pending` messages are under way, or 64 MiB; nothing was sent.
            InvalidArgument, AlreadyClosed, KledgerError: as `send`, of what is known at once.
        """
        message = outgoing(
            value, key=key, properties=properties, event_timestamp=event_timestamp,
            deliver_at=deliver_at, deliver_after_ms=deliver_after_ms, sequence_id=sequence_id,
            producer_name=self._name, now_ms=self._services.clock.now_ms(),
        )  # fmt: skip
        pending = self._pending(message)
        if not self._window.try_enter(message.size):
            raise Full(f"producer of {self._topic} has {self._window} under way")
        self._admit(pending)
        return pending.outcome

    async def send_again(self, message: Message, properties: Mapping[str, str]) -> MessageId:
        """Send a message that was received elsewhere, with more properties."""
        again = resent(message, properties, now_ms=self._services.clock.now_ms())
        pending = self._pending(again)
        if self._window.enter(pending, again.size):
            self._admit(pending)
        return await pending.outcome

    async def flush(self) -> None:
        """Return when every send that has begun has ended; how, its caller hears."""
        unsettled = [each.outcome for each in self._window.waiting if not each.outcome.done()]
        for partition in self._partitions:
            unsettled += partition.unsettled
        if unsettled:
            await asyncio.wait(unsettled)

    def fail(self, error: KledgerError) -> None:
        """There is no way on: sending raises this."""
        self._failure = error
        fail(self._window.waiting, error)
        for partition in self._partitions:
            partition.fail(error)

    async def close(self) -> None:
        """Flush and let go; may be repeated."""
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
                self._told_closed(self)

    def _pending(self, message: Outgoing) -> Pending:
        if self._closing.has_begun:
            raise AlreadyClosed(f"producer of {self._topic} is closed")
        if self._failure is not None:
            raise self._failure
        return Pending(message, asyncio.get_running_loop().create_future())

    def _admit(self, pending: Pending) -> None:
        self._partitions[self._choice.choose(pending.message.key)].add(pending)

    def _settled(self, pending: Sequence[Pending]) -> None:
        size = sum(each.message.size for each in pending)
        for admitted in self._window.leave(len(pending), size):
            self._admit(admitted)

    def _partition(self, index: int) -> PartitionProducer:
        return PartitionProducer(
            self._services,
            self._topic,
            index,
            name=self._name or "",
            is_batching=self._is_batching,
            settled=self._settled,
            left=self._choice.batch_left,
        )

    async def _grow(self, new: range) -> None:
        added = [self._partition(each) for each in new]
        await open_all(added)
        self._partitions += added
        self._choice.grow(len(self._partitions))
