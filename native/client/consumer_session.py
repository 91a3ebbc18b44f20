"""One link of a consumer to one partition, from its opening to its end.

Rule: messages know the session they came by. When it has ended, they will come again by another
one, so acknowledging them means nothing; nothing of it is in the queue then.
Must not know: how a link is opened again.
"""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Protocol

from kledger.native.broker import ConsumerLink
from kledger.native.client.acknowledgement_group import AcknowledgementGroup
from kledger.native.client.receive_queue import ReceiveQueue
from kledger.native.client.redelivery_timer import RedeliveryTimer
from kledger.native.client.services import ClientServices
from kledger.native.client.subscribe_options import SubscribeOptions
from kledger.native.errors import AlreadyClosed, KledgerError, Unreadable
from kledger.native.message import Message
from kledger.native.message_id import MessageId
from kledger.subscriptions.model import Delivery, RecordMask


class DeadLetterSink(Protocol):
    """Takes what was handed out too often."""

    def put(self, messages: Sequence[Message]) -> None:
        """Send them elsewhere, then acknowledge them."""
        ...


class ConsumerSession:
    """The consumer's side of one link."""

    def __init__(
        self,
        services: ClientServices,
        options: SubscribeOptions,
        *,
        topic: str,
        partition: int,
        queue: ReceiveQueue,
        dead_letters: DeadLetterSink | None,
        on_arrived: Callable[[], None],
    ) -> None:
        """Prepare; `begin` follows when there is a link.

        Args:
            services: the client's.
            options: the consumer's.
            topic: its short name.
            partition: which of the topic.
            queue: the consumer's.
            dead_letters: for a consumer with such a policy.
            on_arrived: told when there is something new in the queue.
        """
        self.topic = topic
        self.partition = partition
        self.is_alive = True
        self.end_error: KledgerError | None = None
        self._services = services
        self._options = options
        self._queue = queue
        self._dead_letters = dead_letters
        self._on_arrived = on_arrived
        self._link: ConsumerLink | None = None
        self._group: AcknowledgementGroup | None = None
        self._redelivery_timer = RedeliveryTimer(services.clock, services.timers, self._redeliver)
        self._returnable_permits = 0
        self._refill_at = max(1, options.receiver_queue_size // 2)

    def begin(self, link: ConsumerLink) -> None:
        """Let messages come."""
        self._link = link
        self._group = AcknowledgementGroup(link, self._services.supervisor)
        if self.is_alive:
            link.add_permits(self._options.receiver_queue_size)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take what the server hands out; it calls this."""
        if not self.is_alive:
            return
        policy = self._options.dead_letter
        for delivery in deliveries:
            if policy is not None and delivery.redelivery_count > policy.max_redeliver_count:
                self._send_to_dead_letters(delivery)
            else:
                self._queue.add(self, delivery)
        self._on_arrived()

    def note_received(self, message: Message) -> None:
        """Note that the application has got a message."""
        if self._options.ack_timeout_ms is not None:
            position, records, _ = message.id.acknowledgement()
            self._redelivery_timer.schedule(
                position, records, delay_ms=self._options.ack_timeout_ms
            )
        self.return_permits(1)
        if self._returnable_permits == 0 and self._options.is_reader and self._group is not None:
            # What was read need not be remembered by the server; nothing waits for it.
            self._group.acknowledge_upto_nowait(message.id.acknowledgement_upto())

    def return_permits(self, count: int) -> None:
        """Return permits of records that are out of the queue."""
        self._returnable_permits += count
        if self._returnable_permits >= self._refill_at:
            self.refill()

    def refill(self) -> None:
        """Return all permits there are."""
        count, self._returnable_permits = self._returnable_permits, 0
        if count and self._link is not None and self.is_alive:
            self._link.add_permits(count)

    async def acknowledge(self, id_: MessageId) -> None:
        """Acknowledge one record; see `AcknowledgementGroup`."""
        acknowledgement = id_.acknowledgement()
        if self.is_alive and self._group is not None:
            self._redelivery_timer.forget(acknowledgement.position, acknowledgement.records)
            await self._group.acknowledge(acknowledgement)

    async def acknowledge_upto(self, id_: MessageId) -> None:
        """Acknowledge everything up to a record."""
        acknowledgement = id_.acknowledgement_upto()
        if self.is_alive and self._group is not None:
            self._redelivery_timer.forget_upto(acknowledgement.position, acknowledgement.records)
            await self._group.acknowledge_upto(acknowledgement)

    def redeliver_later(self, id_: MessageId, delay_ms: int) -> None:
        """Let a record come again after a delay, unless it is acknowledged before."""
        position, records, _ = id_.acknowledgement()
        if self.is_alive:
            self._redelivery_timer.schedule(position, records, delay_ms=delay_ms)

    def redeliver_all(self) -> None:
        """Let everything come again that is not acknowledged."""
        if self._link is None or not self.is_alive:
            return
        self._redelivery_timer.clear()
        dropped = self._queue.drop(self)
        self._link.redeliver(None)
        self._returnable_permits += dropped
        self.refill()

    def end(self, error: KledgerError | None) -> None:
        """The link is no more: what came by it is forgotten. None: because of a reset."""
        self.is_alive = False
        self.end_error = error
        self._redelivery_timer.clear()
        self._queue.drop(self)
        if error is None and self._group is not None:
            self._group.note_reset()

    async def close(self) -> None:
        """Tell the server what was acknowledged, and leave. May be repeated."""
        if self.is_alive and self._group is not None:
            await self._group.finish()
        self.is_alive = False
        self._redelivery_timer.clear()
        self._queue.drop(self)
        if self._link is not None:
            await self._link.close()

    def _redeliver(self, masks: list[RecordMask]) -> None:
        if not self._options.is_shared:
            self.redeliver_all()
        elif self._link is not None and self.is_alive:
            self._link.redeliver(masks)

    def _send_to_dead_letters(self, delivery: Delivery) -> None:
        assert self._dead_letters is not None, "a policy without a place for its letters"
        decoder, topic, partition = self._services.decoder, self.topic, self.partition
        try:
            messages = decoder.decode_at_once(delivery, topic=topic, partition=partition, link=self)
        except Unreadable:
            # It cannot be sent elsewhere; whoever receives hears of it.
            self._queue.add(self, delivery)
            return
        if messages is not None:
            self._dead_letters.put(messages)
        else:
            self._services.supervisor.spawn(
                self._divert_long(delivery, self._dead_letters), f"dead letters of {topic}"
            )

    async def _divert_long(self, delivery: Delivery, dead_letters: DeadLetterSink) -> None:
        parts = self._services.decoder.decode_parts(
            delivery, topic=self.topic, partition=self.partition, link=self
        )
        try:
            async with aclosing(parts):
                async for messages in parts:
                    if not self.is_alive:
                        return
                    dead_letters.put(messages)
        except Unreadable:
            if self.is_alive:
                self._queue.add(self, delivery)
                self._on_arrived()
        except AlreadyClosed:
            pass  # it comes again to another consumer
