"""ConsumerSession: one link of a consumer to one partition, from its opening to its end.

Rule: a message knows the session that delivered it. When the session has ended, none of its
messages is in the queue; they are redelivered by the next one, so acknowledging them does nothing.
Must not know: how the next link is opened.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Protocol

from kledger.ledger import EARLIEST, Position
from kledger.native.broker import ConsumerLink
from kledger.native.client.acknowledgement_group import AcknowledgementGroup
from kledger.native.client.redelivery_timer import RedeliveryTimer
from kledger.native.client.services import ClientServices
from kledger.native.client.subscribe_options import SubscribeOptions
from kledger.native.errors import AlreadyClosed, KledgerError, Unreadable
from kledger.native.message import Message
from kledger.native.message_id import MessageId
from kledger.subscriptions.model import ALL, Acknowledgement, Delivery, RecordMask


class DeliveryQueue(Protocol):
    """Takes what is delivered, until the consumer receives it."""

    def add(self, source: "ConsumerSession", delivery: Delivery) -> None:
        """Append a delivery."""
        ...

    def drop(self, source: "ConsumerSession") -> int:
        """Remove what a session has added; return the number of its records."""
        ...


class DeadLetterSink(Protocol):
    """Takes messages that were redelivered too often."""

    def put(self, messages: Sequence[Message]) -> None:
        """Send them to the dead-letter topic, then acknowledge them."""
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
        queue: DeliveryQueue,
        dead_letters: DeadLetterSink | None,
        on_arrived: Callable[[], None],
    ) -> None:
        """Prepare; `begin` is called when the link is open.

        Args:
            services: the client's.
            options: the consumer's.
            topic: its short name.
            partition: its number in the topic.
            queue: the consumer's.
            dead_letters: for a consumer with a dead-letter policy.
            on_arrived: called when messages were added to the queue.
        """
        self.topic = topic
        self.partition = partition
        self.is_alive = True
        self.end_error: KledgerError | None = None
        self.read_position = EARLIEST
        """All before it was delivered, or is not for this consumer."""
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
        """Use this link, and give it the first permits."""
        self._link = link
        self._group = AcknowledgementGroup(link, self._services.supervisor)
        if self.is_alive:
            link.add_permits(self._options.receiver_queue_size)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Queue what the server delivers; the link calls this."""
        if not self.is_alive:
            return
        self.note_read_position(deliveries[-1].position.successor)
        policy = self._options.dead_letter
        for delivery in deliveries:
            if policy is not None and delivery.redelivery_count > policy.max_redeliver_count:
                self._send_to_dead_letters(delivery)
            else:
                self._queue.add(self, delivery)
        self._on_arrived()

    def note_read_position(self, position: Position) -> None:
        """Note how far the server has read for this consumer."""
        self.read_position = position

    def note_received(self, messages: Sequence[Message]) -> None:
        """Note that the application has received some messages of one entry."""
        if self._options.ack_timeout_ms is not None:
            for each in messages:
                position, records, _ = each.acknowledgement()
                self._redelivery_timer.schedule(
                    position, records, delay_ms=self._options.ack_timeout_ms
                )
        self.return_permits(len(messages))
        if self._returnable_permits == 0 and self._options.is_reader:
            self._acknowledge_refilled(messages[-1].id.acknowledgement_upto())

    def note_entry_received(self, delivery: Delivery) -> None:
        """Note that the application has received all messages of a delivery."""
        self.return_permits(delivery.record_count)
        self._acknowledge_refilled(Acknowledgement(delivery.position, ALL, 0))

    def return_permits(self, count: int) -> None:
        """Count permits of records that left the queue; send them when half of it is free."""
        self._returnable_permits += count
        if self._returnable_permits >= self._refill_at:
            self.refill()

    def refill(self) -> None:
        """Send all counted permits to the server."""
        count, self._returnable_permits = self._returnable_permits, 0
        if count and self._link is not None and self.is_alive:
            self._link.add_permits(count)

    def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> Awaitable[None]:
        """Acknowledge records; see `AcknowledgementGroup`. It need not be awaited to happen."""
        if not self.is_alive or self._group is None:
            return _nothing()
        for position, records, _ in acknowledgements:
            self._redelivery_timer.forget(position, records)
        return self._group.acknowledge(acknowledgements)

    async def acknowledge_upto(self, id_: MessageId) -> None:
        """Acknowledge a record and all earlier ones."""
        acknowledgement = id_.acknowledgement_upto()
        if self.is_alive and self._group is not None:
            self._redelivery_timer.forget_upto(acknowledgement.position, acknowledgement.records)
            await self._group.acknowledge_upto(acknowledgement)

    def redeliver_later(self, id_: MessageId, delay_ms: int) -> None:
        """Redeliver a record after a delay, unless it is acknowledged before."""
        position, records, _ = id_.acknowledgement()
        if self.is_alive:
            self._redelivery_timer.schedule(position, records, delay_ms=delay_ms)

    def redeliver_all(self) -> None:
        """Redeliver everything that is not acknowledged."""
        if self._link is None or not self.is_alive:
            return
        self._redelivery_timer.clear()
        dropped = self._queue.drop(self)
        self._link.redeliver(None)
        self._returnable_permits += dropped
        self.refill()

    def end(self, error: KledgerError | None) -> None:
        """Drop the messages of a link that has ended; None: because of a reset."""
        self.is_alive = False
        self.end_error = error
        self._redelivery_timer.clear()
        self._queue.drop(self)
        if error is None and self._group is not None:
            self._group.note_reset()

    async def close(self) -> None:
        """Send the pending acknowledgements and close the link. May be repeated."""
        if self.is_alive and self._group is not None:
            await self._group.finish()
        self.is_alive = False
        self._redelivery_timer.clear()
        self._queue.drop(self)
        if self._link is not None:
            await self._link.close()

    def _acknowledge_refilled(self, upto: Acknowledgement) -> None:
        """Acknowledge what a reader has read whenever its permits were sent.

        So the server need not keep track of it; no caller waits for it.
        """
        if self._returnable_permits == 0 and self._group is not None:
            self._group.acknowledge_upto_nowait(upto)

    def _redeliver(self, masks: list[RecordMask]) -> None:
        if not self._options.is_shared:
            self.redeliver_all()
        elif self._link is not None and self.is_alive:
            self._link.redeliver(masks)

    def _send_to_dead_letters(self, delivery: Delivery) -> None:
        assert self._dead_letters is not None, "a dead-letter policy without a producer"
        decoder, topic, partition = self._services.decoder, self.topic, self.partition
        try:
            messages = decoder.decode_at_once(delivery, topic=topic, partition=partition, link=self)
        except Unreadable:
            # It cannot be sent to the dead-letter topic; `receive` raises the error.
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
            pass  # the messages are redelivered to another consumer


async def _nothing() -> None:
    """Acknowledge nothing: the session has ended, and its messages are redelivered."""
