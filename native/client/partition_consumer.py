"""PartitionConsumer: one partition of a consumer; opens a new session when the old one has ended.

Rule: when a session ends, its messages leave the queue. The next one is opened at once after a
reset, with backoff after a lost connection, and not at all after a final error.
Must not know: the content of messages.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial

from kledger.ledger import Position
from kledger.native.broker import ConsumerRequest, RecordPosition, SeekTarget
from kledger.native.client.consumer_session import ConsumerSession, DeadLetterSink, DeliveryQueue
from kledger.native.client.reconnect import is_final, open_with_retries, reconnect_backoff
from kledger.native.client.services import ClientServices
from kledger.native.client.subscribe_options import SubscribeOptions
from kledger.native.errors import AlreadyClosed, KledgerError, SubscriptionFenced, Unavailable
from kledger.native.message import Message
from kledger.runtime.signal import Signal
from kledger.subscriptions.model import Delivery


class PartitionConsumer:
    """Consumes one partition of a topic."""

    def __init__(
        self,
        services: ClientServices,
        options: SubscribeOptions,
        *,
        topic: str,
        partition: int,
        start: SeekTarget,
        queue: DeliveryQueue,
        dead_letters: DeadLetterSink | None,
        on_arrived: Callable[[], None],
        on_failed: Callable[[KledgerError], None],
        on_read_position: Callable[[ConsumerSession, Position], None] | None = None,
    ) -> None:
        """Prepare; `open` connects.

        Args:
            services: the client's.
            options: the consumer's.
            topic: its short name.
            partition: its number in the topic.
            start: where a new subscription of this partition begins.
            queue: the consumer's.
            dead_letters: for a consumer with a dead-letter policy.
            on_arrived: called when messages were added to the queue.
            on_failed: called with a final error.
            on_read_position: for an exclusive consumer: see `Broker.open_consumer`.
        """
        self._services = services
        self._options = options
        self._topic = topic
        self._partition = partition
        self._start, self._is_start_inclusive = start, options.is_start_inclusive
        self._last_received: Message | RecordPosition | None = None
        self._has_received = False
        """Whether the application has received messages since the position was set."""
        self._queue = queue
        self._dead_letters = dead_letters
        self._on_arrived = on_arrived
        self._on_failed = on_failed
        self._on_read_position = on_read_position
        self._session: ConsumerSession | None = None
        self.last_error: KledgerError | None = None
        """The error of the last attempt to connect; None while connected."""
        self._reopening: asyncio.Task[None] | None = None
        self._changed = Signal()
        self._is_closed = False
        self._failure: KledgerError | None = None

    @property
    def partition(self) -> int:
        """Its number in the topic."""
        return self._partition

    @property
    def session(self) -> ConsumerSession | None:
        """The live session; None while reconnecting."""
        return self._session

    @property
    def start(self) -> tuple[SeekTarget, bool]:
        """Where a new subscription begins, and whether inclusively.

        A subscription that is not durable is new after every reconnect; it continues behind the
        last received message.
        """
        match self._last_received:
            case Message():
                return self._last_received.id.record_position, False
            case RecordPosition():
                return self._last_received, False
        return self._start, self._is_start_inclusive

    async def open(self) -> None:
        """Connect for the first time. Raises the server's error."""
        await self._connect(is_first=True)

    async def close(self) -> None:
        """Leave the subscription; may be repeated."""
        self._is_closed = True
        self._changed.notify()
        await self._stop_reopening()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def note_received(self, messages: Sequence[Message]) -> None:
        """Note that the application has received some messages of one entry."""
        self._has_received = True
        session = self._session
        if session is not None:
            session.note_received(messages)
        if not self._options.is_durable:
            # The server deletes the cursor with the link; a new one begins behind this message.
            self._last_received = messages[-1]

    def note_entry_received(self, delivery: Delivery) -> None:
        """Note that the application has received all messages of a delivery."""
        self._has_received = True
        if self._session is not None:
            self._session.note_entry_received(delivery)
        if not self._options.is_durable:
            self._last_received = RecordPosition(delivery.position)

    def refill(self) -> None:
        """Return all permits to the server, so that it fills the queue."""
        if self._session is not None:
            self._session.refill()

    def session_for(self, link: object | None) -> ConsumerSession | None:
        """Return the session that acknowledges what a link delivered; None: that link has ended.

        An id that was not delivered by a session (None) belongs to the current one.

        Raises:
            Unavailable: the partition is reconnecting.
        """
        if isinstance(link, ConsumerSession) and not link.is_alive:
            return None
        if self._session is None:
            raise Unavailable(f"{self._topic}-{self._partition}: the connection is being renewed")
        return self._session

    async def reopen_after_reset(self, on_ended: ConsumerSession | None) -> None:
        """End a session after a reset, unless it has ended already; wait for the next one.

        Raises:
            KledgerError: a final error.
        """
        self._check_open()
        self._has_received = False
        if on_ended is not None and self._session is on_ended:
            self._end_and_reopen(on_ended)
        await self._wait_connected()

    async def restart_at(self, start: SeekTarget, *, inclusive: bool) -> None:
        """Reconnect at another position; for a subscription that is not durable."""
        await self._stop_reopening()
        self._check_open()
        self._start, self._is_start_inclusive = start, inclusive
        self._last_received, self._has_received = None, False
        self._end_and_reopen(self._session)
        await self._wait_connected()

    def _check_open(self) -> None:
        if self._is_closed:
            raise AlreadyClosed(f"consumer of {self._topic} is closed")

    async def _stop_reopening(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.wait([self._reopening])

    def _end_and_reopen(self, session: ConsumerSession | None) -> None:
        """End a session as a reset does, and open the next one."""
        self._session = None
        if session is not None:
            session.end(None)
        self._reopen_soon(self._reopen(leaving=session))

    def _on_link_ended(self, session: ConsumerSession, error: KledgerError | None) -> None:
        """End the session of a link that has ended, and open the next one."""
        session.end(error)
        if error is None:
            self._has_received = False
        if session is not self._session:
            return  # It was left before, or is being opened: then `_open_session` raises.
        self._session = None
        if is_final(error):
            assert error is not None, "a reset is never final"
            self.fail(error)
        else:
            self._reopen_soon(self._reopen(is_at_once=error is None))

    def _reopen_soon(self, work: Coroutine[None, None, None]) -> None:
        self._reopening = self._services.supervisor.spawn(
            work, f"consumer of {self._topic}-{self._partition}"
        )

    async def _reopen(
        self, *, leaving: ConsumerSession | None = None, is_at_once: bool = True
    ) -> None:
        try:
            if leaving is not None:
                # A lost link needs not be closed.
                with suppress(KledgerError):
                    await leaving.close()
            if not is_at_once:
                await self._services.clock.sleep(reconnect_backoff(self._services).next_ms())
            await self._connect(is_first=False)
        except KledgerError as error:
            self.fail(error)
        finally:
            self._reopening = None

    def fail(self, error: KledgerError) -> None:
        """Stop with a final error; calls that wait for a session raise it."""
        self._failure = error
        self._changed.notify()
        self._on_failed(error)

    async def _wait_connected(self) -> None:
        while self._session is None:
            if self._failure is not None:
                raise self._failure
            self._check_open()
            await self._changed.wait()

    async def _connect(self, *, is_first: bool) -> None:
        session = await open_with_retries(
            self._services, self._open_session, is_first=is_first, on_failed=self._note_error
        )
        self.last_error = None
        if self._is_closed:
            await session.close()
            self._check_open()
        self._session = session
        self._changed.notify()

    def _note_error(self, error: KledgerError) -> None:
        self.last_error = error

    async def _open_session(self) -> ConsumerSession:
        options = self._options
        session = ConsumerSession(
            self._services,
            options,
            topic=self._topic,
            partition=self._partition,
            queue=self._queue,
            dead_letters=self._dead_letters,
            on_arrived=self._on_arrived,
        )
        start, is_inclusive = self.start
        request = ConsumerRequest(
            topic=self._topic,
            partition=self._partition,
            subscription=options.subscription,
            type=options.type,
            start=start,
            is_start_inclusive=is_inclusive,
            is_durable=options.is_durable,
            consumer_name=options.name,
            priority_level=options.priority_level,
            key_ranges=options.key_ranges,
            unacked_max=options.unacked_max,
            unacked_subscription_max=options.unacked_subscription_max,
            failover_delay_ms=options.failover_delay_ms,
            reads_compacted=options.reads_compacted,
            is_continued=self._has_received,
        )
        on_read_position = self._on_read_position
        link = await self._services.broker.open_consumer(
            request,
            deliver=session.deliver,
            on_ended=lambda error: self._on_link_ended(session, error),
            on_read_position=on_read_position and partial(on_read_position, session),
        )
        if not session.is_alive:
            raise session.end_error or SubscriptionFenced(
                f"{self._topic}: reset while being opened"
            )
        session.begin(link)
        return session
