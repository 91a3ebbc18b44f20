"""One partition of a consumer: keeps a session open, and opens another one when it has ended.

Rule: a session that ends takes its part of the queue along; then the next one is opened, at once
after a reset, with patience after a loss, not at all when the server's word is final.
Must not know: what a message is.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress

from kledger.native.broker import ConsumerRequest, SeekTarget
from kledger.native.client.consumer_session import ConsumerSession, DeadLetterSink
from kledger.native.client.receive_queue import ReceiveQueue
from kledger.native.client.reconnect import is_final, open_with_retries, reconnect_backoff
from kledger.native.client.services import ClientServices
from kledger.native.client.subscribe_options import SubscribeOptions
from kledger.native.errors import AlreadyClosed, KledgerError, SubscriptionFenced, Unavailable
from kledger.native.message import Message
from kledger.native.message_id import MessageId
from kledger.runtime.signal import Signal


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
        queue: ReceiveQueue,
        dead_letters: DeadLetterSink | None,
        on_arrived: Callable[[], None],
        on_failed: Callable[[KledgerError], None],
    ) -> None:
        """Prepare; `open` connects.

        Args:
            services: the client's.
            options: the consumer's.
            topic: its short name.
            partition: which of the topic.
            start: where a new subscription of this partition begins.
            queue: the consumer's.
            dead_letters: for a consumer with such a policy.
            on_arrived: told when there is something new in the queue.
            on_failed: told when there is no way on.
        """
        self._services = services
        self._options = options
        self._topic = topic
        self._partition = partition
        self._start, self._is_start_inclusive = start, options.is_start_inclusive
        self._last_received: Message | None = None
        self._queue = queue
        self._dead_letters = dead_letters
        self._on_arrived = on_arrived
        self._on_failed = on_failed
        self._session: ConsumerSession | None = None
        self.last_error: KledgerError | None = None
        """What the last try to connect has failed with; None while it is connected."""
        self._reopening: asyncio.Task[None] | None = None
        self._changed = Signal()
        self._is_closed = False
        self._failure: KledgerError | None = None

    @property
    def partition(self) -> int:
        """Which of the topic."""
        return self._partition

    @property
    def session(self) -> ConsumerSession | None:
        """The session that lives; None between two."""
        return self._session

    @property
    def start(self) -> tuple[SeekTarget, bool]:
        """Where reading goes on if the server has forgotten the place, and whether inclusive."""
        if self._last_received is not None:
            return self._last_received.id.record_position, False
        return self._start, self._is_start_inclusive

    async def open(self) -> None:
        """Connect for the first time. Raises what the server answers."""
        await self._connect(is_first=True)

    async def close(self) -> None:
        """Leave; may be repeated."""
        self._is_closed = True
        self._changed.notify()
        await self._stop_reopening()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def note_received(self, message: Message) -> None:
        """Note that the application has got a message."""
        session = self._session
        if session is not None:
            session.note_received(message)
        if not self._options.is_durable:
            # The server forgets such a place with the link; a new one begins behind this message.
            self._last_received = message

    def refill(self) -> None:
        """Let as many messages come as there is room for."""
        if self._session is not None:
            self._session.refill()

    def session_for(self, id_: MessageId) -> ConsumerSession | None:
        """Return who takes something about a record; None when it is of a session that ended.

        An id that came by no session of this partition is meant as it stands, now.

        Raises:
            Unavailable: there is no session at the moment.
        """
        link = id_.link
        if isinstance(link, ConsumerSession) and not link.is_alive:
            return None
        if self._session is None:
            raise Unavailable(f"{self._topic}-{self._partition}: the connection is being renewed")
        return self._session

    async def reopen_after_reset(self, on_ended: ConsumerSession | None) -> None:
        """The server has set the place: end that session, unless it has ended; wait for the next.

        Raises:
            KledgerError: there is no way on.
        """
        self._check_open()
        if on_ended is not None and self._session is on_ended:
            self._end_and_reopen(on_ended)
        await self._wait_connected()

    async def restart_at(self, start: SeekTarget, *, inclusive: bool) -> None:
        """Leave, and come back at another place; for what the server forgets on leaving."""
        await self._stop_reopening()
        self._check_open()
        self._start, self._is_start_inclusive = start, inclusive
        self._last_received = None
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
        """End a session as a reset does, and open another one."""
        self._session = None
        if session is not None:
            session.end(None)
        self._reopen_soon(self._reopen(leaving=session))

    def _on_link_ended(self, session: ConsumerSession, error: KledgerError | None) -> None:
        """The server has ended a link."""
        session.end(error)
        if session is not self._session:
            return  # It was left before, or is being opened: who opens it will see.
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
                # A link that is gone needs no farewell.
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
        """There is no way on: whoever waits for a session hears it."""
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
        )
        link = await self._services.broker.open_consumer(
            request,
            deliver=session.deliver,
            on_ended=lambda error: self._on_link_ended(session, error),
        )
        if not session.is_alive:
            raise session.end_error or SubscriptionFenced(
                f"{self._topic}: reset while being opened"
            )
        session.begin(link)
        return session
