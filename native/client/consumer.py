"""Consumer: receives the messages of a topic through a subscription.

Rule: a received message is acknowledged or redelivered. `receive` removes it from the queue in the
same step in which it returns it, so a cancelled call loses nothing.
Must not know: how links are kept open.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Self

from kledger.ledger import Position
from kledger.native.broker import EARLIEST, SeekTarget, TopicInfo
from kledger.native.client.close_once import CloseOnce, ClosesOnExit
from kledger.native.client.consumer_session import ConsumerSession
from kledger.native.client.dead_letter import DeadLetterProducer
from kledger.native.client.partition_consumer import PartitionConsumer
from kledger.native.client.partition_set import close_all, open_all, watch_partitions
from kledger.native.client.producer import Producer
from kledger.native.client.receive_queue import ReceiveQueue
from kledger.native.client.services import ClientServices
from kledger.native.client.subscribe_options import SubscribeOptions, check_number, target_of
from kledger.native.errors import (
    AlreadyClosed,
    InvalidArgument,
    KledgerError,
    SubscriptionNotFound,
    Timeout,
    Unreadable,
)
from kledger.native.message import Message, MessageEntry
from kledger.native.message_id import MessageId
from kledger.runtime.signal import Signal
from kledger.subscriptions.entry_view import mask_of
from kledger.subscriptions.model import ALL, Acknowledgement, SubscriptionType

BATCH_LINGER_MS = 100
"""How long `batch_receive` without a time limit waits for more after the first message."""
RECEIVES_WITHOUT_YIELD_MAX = 500
"""Messages that `receive` returns in a row before it yields to the event loop."""


class Consumer(ClosesOnExit):
    """Made by `Client.subscribe`; also an asynchronous context manager and iterator."""

    def __init__(
        self,
        services: ClientServices,
        topic: TopicInfo,
        options: SubscribeOptions,
        *,
        create_producer: Callable[[str], Awaitable[Producer]],
        on_closed: Callable[["Consumer"], None],
        starts: Mapping[int, SeekTarget] | None = None,
    ) -> None:
        """Prepare; `open` connects.

        Args:
            services: the client's.
            topic: the topic to consume.
            options: checked already.
            create_producer: for dead letters.
            on_closed: called when this consumer is closed.
            starts: start positions by partition, instead of the one in the options.
        """
        self._services = services
        self._topic = topic.name
        self._options = options
        self._on_closed = on_closed
        self._changed = Signal()
        self._queue = ReceiveQueue(services.decoder, self._changed.notify)
        self._failure: KledgerError | None = None
        self._closing = CloseOnce(services.supervisor, f"consumer of {topic.name}")
        self._unreadable: Unreadable | None = None
        self._receives_without_yield = 0
        self._dead_letters: DeadLetterProducer | None = None
        if options.dead_letter is not None:
            letters = options.dead_letter.topic or f"{topic.name}-{options.subscription}-DLQ"
            self._dead_letters = DeadLetterProducer(services, letters, create_producer)
        self._partitions = [
            self._partition(each, (starts or {}).get(each, options.start))
            for each in range(topic.partition_count)
        ]
        self._watch: asyncio.Task[None] | None = None

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        return self._topic

    @property
    def subscription(self) -> str:
        """The name of the subscription."""
        return self._options.subscription

    @property
    def consumer_name(self) -> str:
        """The name of this consumer in its subscription."""
        return self._options.name

    @property
    def partitions(self) -> Sequence[PartitionConsumer]:
        """The consumers of its partitions; only for `Reader`."""
        return self._partitions

    @property
    def queued(self) -> int:
        """How many messages are in the queue."""
        return len(self._queue)

    def last_error(self) -> KledgerError | None:
        """Return the error of the last failed attempt to connect a partition, or None."""
        return next(
            (each.last_error for each in self._partitions if each.last_error is not None), None
        )

    @property
    def reads_compacted(self) -> bool:
        """Whether it receives what compactions have kept."""
        return self._options.reads_compacted

    async def is_read_upto(self, ends: Sequence[Position]) -> bool:
        """Wait until the queue has a message, or nothing is before these ends; only for `Reader`.

        Args:
            ends: of each partition, behind its last entry.

        Returns:
            Whether nothing is before the ends.

        Raises:
            KledgerError: the consumer is closed, or has ended.
        """
        while True:
            version = self._changed.version
            self._check_usable()
            if self._queue:
                return False
            sessions = (each.session for each in self._partitions)
            if all(
                session is not None and session.read_position >= end
                for session, end in zip(sessions, ends, strict=False)
            ):
                return True
            await self._changed.wait_beyond(version)

    async def open(self) -> None:
        """Connect to all partitions; only for `Client`."""
        is_exclusive = self._options.type is SubscriptionType.EXCLUSIVE
        await open_all(self._partitions, first_alone=is_exclusive)
        self._check_closed()
        self._watch = self._services.supervisor.spawn(
            watch_partitions(
                self._services, self._topic, len(self._partitions), self._add_partitions
            ),
            f"partitions of {self._topic}",
        )

    async def receive(self, *, timeout_ms: int | None = None) -> Message:
        """Wait for the next message and return it.

        Raises:
            Timeout: no message arrived within the time limit.
            AlreadyClosed: the consumer is closed, also while this call waits.
            Unreadable: a stored batch is damaged; the next call continues behind it.
            KledgerError: the server has ended this consumer for good.
        """
        deadline_ms = self._deadline_ms(timeout_ms)
        self._receives_without_yield += 1
        if self._receives_without_yield >= RECEIVES_WITHOUT_YIELD_MAX:
            self._receives_without_yield = 0
            await self._services.clock.sleep(0)
        while True:
            version = self._changed.version
            messages = self._take(1)
            if messages:
                return messages[0]
            self._receives_without_yield = 0
            # The time limit is for messages that must still arrive, not for decoding.
            if not await self._wait(version, None if self._queue.is_decoding else deadline_ms):
                raise Timeout(f"nothing came from {self._topic} within {timeout_ms} ms")

    async def batch_receive(
        self, max_messages: int, *, timeout_ms: int | None = None
    ) -> list[Message]:
        """Return up to `max_messages`; fewer, perhaps none, when the time is up.

        Without a time limit it waits for the first message, and then up to 100 ms for more. It may
        also return fewer messages before a large batch, which takes longer to decode.

        Raises:
            AlreadyClosed, Unreadable, KledgerError: as `receive`.
        """
        check_number("max_messages", max_messages, at_least=1)
        deadline_ms = self._deadline_ms(timeout_ms)
        # The queue of one partition holds no more than this.
        wanted = min(max_messages, self._options.receiver_queue_size)
        while len(self._queue) < wanted:
            version = self._changed.version
            self._check_usable()
            if deadline_ms is None and self._queue:
                deadline_ms = self._deadline_ms(BATCH_LINGER_MS)
            for partition in self._partitions:
                partition.refill()
            if not await self._wait(version, deadline_ms):
                break
        while True:
            version = self._changed.version
            if self._queue.gather(wanted):
                messages = self._take_many(max_messages)
                if messages or not self._queue.is_decoding:
                    return messages
            await self._changed.wait_beyond(version)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Receive the next message; closing the consumer ends the iteration."""
        try:
            return await self.receive()
        except AlreadyClosed:
            if self._closing.has_begun:
                raise StopAsyncIteration from None
            raise

    async def acknowledge(
        self, message: Message | MessageId | Iterable[Message | MessageId]
    ) -> None:
        """Acknowledge a message, or several at once; return when that is durable.

        A message from before a seek, a reset or a lost connection is redelivered in any case; for
        such a message this does nothing. Cancelling the caller does not undo the acknowledgement.
        Several messages in one call cost a fraction of as many calls; they need not be in order.

        Raises:
            Unavailable: the connection was lost meanwhile; the message may be redelivered.
            InvalidArgument: the id is not of this topic; of several messages of a partition, all
                are acknowledged or none.
            AlreadyClosed: the consumer is closed.
        """
        if isinstance(message, Message | MessageId):
            session = self._session_of(message)
            if session is not None:
                await session.acknowledge((message.acknowledgement(),))
        else:
            await self._acknowledge_all(message)

    async def _acknowledge_all(self, messages: Iterable[Message | MessageId]) -> None:
        given: object = messages  # callers may be untyped
        if not isinstance(given, Iterable):
            raise InvalidArgument(f"expected messages or ids, got {type(given).__name__}")
        self._check_usable()
        found: dict[ConsumerSession, list[Acknowledgement]] = {}
        for entry, group in groupby(messages, _entry_of):
            if entry is None:
                for each in group:
                    session = self._session_of(each)
                    if session is not None:
                        found.setdefault(session, []).append(each.acknowledgement())
                continue
            run = [each for each in group if isinstance(each, Message)]
            session = self._session_of(run[0])
            if session is not None:
                found.setdefault(session, []).append(_acknowledgement_of(run))
        await asyncio.gather(*(session.acknowledge(each) for session, each in found.items()))

    async def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge a message and all earlier ones of its partition.

        Raises:
            InvalidArgument: the subscription is a shared one; else as `acknowledge`.
        """
        self._check_usable()
        if self._options.is_shared:
            raise InvalidArgument(f"a {self._options.type} consumer acknowledges one by one")
        session = self._session_of(message)
        if session is not None:
            await session.acknowledge_upto(_id_of(message))

    async def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Redeliver a message after `negative_ack_redelivery_delay_ms`.

        An exclusive or failover consumer also gets all later unacknowledged messages again, in
        order.
        """
        session = self._session_of(message)
        if session is not None:
            delay_ms = self._options.negative_ack_redelivery_delay_ms
            session.redeliver_later(_id_of(message), delay_ms)

    async def redeliver_unacknowledged(self) -> None:
        """Redeliver all unacknowledged messages of this consumer."""
        self._check_usable()
        for partition in self._partitions:
            if partition.session is not None:
                partition.session.redeliver_all()

    async def seek(self, to: MessageId | int | str, *, inclusive: bool = True) -> None:
        """Set the position of the subscription, for all its consumers.

        Args:
            to: an id (only its partition is moved), a time in ms (the first message of that time
                or later), "earliest" or "latest".
            inclusive: whether the message with that id is delivered, or the next one.

        Raises:
            SubscriptionFenced: another client is setting it; a retry soon will work.
            Timeout: it took longer than the client's `operation_timeout_ms`; a retry may help.
            Unavailable: the server cannot be reached.
        """
        self._check_usable()
        async with self._services.operations.run(f"seek {self._topic}") as operation:
            operation.last_error = self.last_error
            await self._seek(to, inclusive=inclusive)

    async def _seek(self, to: MessageId | int | str, *, inclusive: bool) -> None:
        target = target_of(to)
        partition = self._known_partition(to) if isinstance(to, MessageId) else None
        options, parts = self._options, self._partitions
        if partition is not None:
            parts = [self._partitions[partition]]
        if not options.is_durable and options.type is SubscriptionType.EXCLUSIVE:
            await self.restart_at({each.partition: target for each in parts}, inclusive=inclusive)
            return
        before = [each.session for each in parts]
        await self._services.broker.reset_subscription(
            self._topic, options.subscription, target, partition=partition, inclusive=inclusive
        )
        await asyncio.gather(
            *(each.reopen_after_reset(session) for each, session in zip(parts, before, strict=True))
        )

    async def restart_at(self, targets: Mapping[int, SeekTarget], *, inclusive: bool) -> None:
        """Seek by reconnecting at these positions, by partition.

        Only for a subscription that is not durable and has this consumer alone.
        """
        async with self._services.operations.run(f"seek {self._topic}") as operation:
            operation.last_error = self.last_error
            await asyncio.gather(
                *(
                    self._partitions[partition].restart_at(target, inclusive=inclusive)
                    for partition, target in targets.items()
                )
            )

    async def get_last_message_id(self, *, partition: int | None = None) -> MessageId:
        """Return the id of the newest message; entry -1 when there is none.

        Args:
            partition: None: the largest id of all partitions; with several partitions this need
                not be the newest message.
        """
        self._check_usable()
        if partition is not None:
            check_number("partition", partition)
        wanted = range(len(self._partitions)) if partition is None else [partition]
        records = await asyncio.gather(
            *(self._services.broker.last_record(self._topic, each) for each in wanted)
        )
        return max(MessageId.at(record, each) for each, record in zip(wanted, records, strict=True))

    async def unsubscribe(self) -> None:
        """Delete the subscription and close.

        Raises:
            ConsumerBusy: it has other consumers; this one continues.
        """
        self._check_usable()
        await close_all(self._partitions)
        try:
            await self._services.broker.delete_subscription(
                self._topic, self._options.subscription, force=False
            )
        except SubscriptionNotFound:
            pass  # A subscription that is not durable was deleted with its last consumer.
        except KledgerError:
            parts = [self._partition(each.partition, each.start[0]) for each in self._partitions]
            self._partitions = parts
            async with self._services.operations.run(f"resume consuming {self._topic}"):
                await open_all(parts)
            raise
        await self.close()

    def fail(self, error: KledgerError) -> None:
        """Let `receive` raise this error once the queue is empty."""
        for partition in self._partitions:
            partition.fail(error)

    async def close(self) -> None:
        """Leave the subscription; other consumers get the unacknowledged messages. Repeatable."""
        await self._closing.run(self._close)

    async def _close(self) -> None:
        self._changed.notify()
        if self._watch is not None:
            self._watch.cancel()
        try:
            if self._dead_letters is not None:
                await self._dead_letters.close()
        finally:
            try:
                await close_all(self._partitions)
            finally:
                self._on_closed(self)

    def _take(self, count: int) -> Sequence[Message]:
        """Return up to `count` messages of one entry; none: nothing is there, or decoded."""
        self._check_closed()
        if self._unreadable is not None:
            damage, self._unreadable = self._unreadable, None
            raise damage
        messages = self._queue.take_run(count)
        if messages:
            self._partitions[messages[0].entry.partition].note_received(messages)
        elif self._failure is not None:
            raise self._failure
        return messages

    def _take_many(self, count: int) -> list[Message]:
        messages: list[Message] = []
        while len(messages) < count:
            try:
                taken = self._take(count - len(messages))
            except KledgerError as error:
                if not messages:
                    raise
                if isinstance(error, Unreadable):
                    self._unreadable = error  # the next call raises it; this one has messages
                break
            if not taken:
                break
            messages += taken
        return messages

    def _deadline_ms(self, timeout_ms: int | None) -> int | None:
        if timeout_ms is None:
            return None
        check_number("timeout_ms", timeout_ms)
        return self._services.clock.monotonic_ms() + timeout_ms

    async def _wait(self, version: int, deadline_ms: int | None) -> bool:
        """Wait for a change since `version`; return False if the deadline has passed already."""
        if deadline_ms is None:
            await self._changed.wait_beyond(version)
            return True
        if self._services.clock.monotonic_ms() >= deadline_ms:
            return False
        timer = self._services.timers.call_at(deadline_ms, self._changed.notify)
        try:
            await self._changed.wait_beyond(version)
        finally:
            timer.cancel()
        return True

    def _check_closed(self) -> None:
        if self._closing.has_begun:
            raise AlreadyClosed(f"consumer of {self._topic} is closed")

    def _check_usable(self) -> None:
        self._check_closed()
        if self._failure is not None:
            raise self._failure

    def _session_of(self, message: Message | MessageId) -> ConsumerSession | None:
        """Return the session that acknowledges a message; None: the message's own has ended.

        Raises:
            InvalidArgument: it is not of this topic.
            Unavailable: the partition is reconnecting.
            AlreadyClosed, KledgerError: this consumer has ended.
        """
        self._check_usable()
        if isinstance(message, Message):
            entry = message.entry
            if entry.topic != self._topic or not entry.partition < len(self._partitions):
                raise InvalidArgument(f"a message of {entry.topic}, expected {self._topic}")
            return self._partitions[entry.partition].session_for(entry.link)
        return self._partitions[self._known_partition(message)].session_for(message.link)

    def _known_partition(self, id_: MessageId) -> int:
        if not isinstance(id_, MessageId):
            raise InvalidArgument(f"expected a message or its id, got {type(id_).__name__}")
        if id_.link is None:
            id_.check()
        if not 0 <= id_.partition < len(self._partitions):
            raise InvalidArgument(
                f"message id {id_}: {self._topic} has {len(self._partitions)} partitions"
            )
        return id_.partition

    def _partition(self, index: int, start: SeekTarget) -> PartitionConsumer:
        return PartitionConsumer(
            self._services,
            self._options,
            topic=self._topic,
            partition=index,
            start=start,
            queue=self._queue,
            dead_letters=self._dead_letters,
            on_arrived=self._changed.notify,
            on_failed=self._on_failed,
            on_read_position=self._on_read_position if self._options.reports_position else None,
        )

    def _on_read_position(self, session: ConsumerSession, position: Position) -> None:
        session.note_read_position(position)
        self._changed.notify()

    def _on_failed(self, error: KledgerError) -> None:
        self._failure = error
        self._changed.notify()

    async def _add_partitions(self, new: range) -> None:
        """Consume new partitions, from their beginning, so that no message is missed."""
        for index in new[len(self._partitions) - new.start :]:
            partition = self._partition(index, EARLIEST)
            # Before it is open: `receive` must know the partition of its first message.
            self._partitions.append(partition)
            try:
                await partition.open()
            except BaseException:
                self._partitions.pop()
                await partition.close()
                raise


def _id_of(message: Message | MessageId) -> MessageId:
    return message.id if isinstance(message, Message) else message


def _entry_of(message: Message | MessageId) -> MessageEntry | None:
    return message.entry if isinstance(message, Message) else None


def _acknowledgement_of(messages: Sequence[Message]) -> Acknowledgement:
    """Return the acknowledgement of messages of one entry."""
    first, count = messages[0], len(messages)
    position, records, batch_size = first.acknowledgement()
    if records == ALL:
        return Acknowledgement(position, ALL, batch_size)
    indexes = [each.index for each in messages]
    if indexes == list(range(first.index, first.index + count)):  # as they were received
        return Acknowledgement(position, ((1 << count) - 1) << first.index, batch_size)
    return Acknowledgement(position, mask_of(indexes), batch_size)
