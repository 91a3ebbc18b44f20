"""ServerConsumerLink: the server's end of a consumer link.

Rule: the subscription checks acknowledgements. A link that has ended calls `on_ended` once, with
the reason, and ignores further calls.
Must not know: how records are dispatched to consumers.
"""

from collections.abc import Sequence

from kledger.delivery.errors import PartitionEnded
from kledger.delivery.subscribed_partition import SubscribedPartition
from kledger.ledger import Position
from kledger.native.broker import PERMITS_PER_CALL_MAX, ConsumerRequest, OnEnded
from kledger.native.errors import InvalidArgument, KledgerError, SubscriptionNotFound
from kledger.native.server.error_map import native_error, translating
from kledger.runtime.containment import unit_of
from kledger.subscriptions.errors import SubscriptionClosed, SubscriptionsError
from kledger.subscriptions.model import (
    Acknowledgement,
    ConsumerOptions,
    Deliver,
    Delivery,
    OnReadPosition,
    RecordMask,
)
from kledger.subscriptions.subscription import Subscription, SubscriptionConsumer


class ServerConsumerLink:
    """A `native.broker.ConsumerLink`; made by `join`."""

    def __init__(
        self,
        partition: SubscribedPartition,
        subscription: Subscription,
        request: ConsumerRequest,
        *,
        deliver: Deliver,
        on_ended: OnEnded,
        on_read_position: OnReadPosition | None,
    ) -> None:
        self._partition = partition
        self._subscription = subscription
        self._request = request
        self._deliver = deliver
        self._on_ended = on_ended
        self._on_read_position = on_read_position
        self._is_ended = False
        self._consumer: SubscriptionConsumer | None = None

    async def join(self) -> None:
        """Become a consumer of the subscription.

        Raises:
            SubscriptionsError: the subscription refuses the consumer.
        """
        request, report = self._request, self._on_read_position
        listener = self._on_partition_ended
        self._partition.add_listener(listener, unit_of(listener, "native link"))
        try:
            self._consumer = await self._subscription.add_consumer(
                ConsumerOptions(
                    name=request.consumer_name,
                    priority_level=request.priority_level,
                    key_ranges=request.key_ranges,
                    unacked_max=request.unacked_max,
                ),
                request.type,
                deliver=self._on_deliveries,
                on_ended=self._on_disconnected,
                on_read_position=report and self._report_read_position,
                reads_compacted=request.reads_compacted,
                is_continued=request.is_continued,
                unacked_subscription_max=request.unacked_subscription_max,
                failover_delay_ms=request.failover_delay_ms,
            )
        except BaseException:
            self._mark_ended()
            raise

    def add_permits(self, count: int) -> None:
        """Permit the delivery of `count` more records. Raises InvalidArgument."""
        if not 1 <= count <= PERMITS_PER_CALL_MAX:
            raise InvalidArgument(f"permits: expected 1 to {PERMITS_PER_CALL_MAX}, got {count}")
        if self._consumer is not None and not self._is_ended:
            self._consumer.add_permits(count)

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Acknowledge records individually; see `native.broker.ConsumerLink`."""
        if self._consumer is not None and not self._is_ended:
            with translating(self._partition):
                await self._consumer.acknowledge(acknowledgements)

    async def acknowledge_upto(self, acknowledgement: Acknowledgement) -> None:
        """Acknowledge all earlier entries and these records of this one."""
        if self._consumer is not None and not self._is_ended:
            with translating(self._partition):
                await self._consumer.acknowledge_upto(acknowledgement)

    def redeliver(self, masks: Sequence[RecordMask] | None) -> None:
        """Redeliver these records, or all unacknowledged ones of this consumer (None)."""
        if self._consumer is not None and not self._is_ended:
            with translating():
                self._consumer.redeliver(masks)

    async def close(self) -> None:
        """Leave the subscription; may be repeated."""
        self._mark_ended()
        if self._consumer is not None:
            with translating():
                await self._consumer.close()

    # Called by the subscription and the partition

    def _on_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        if self._is_ended:
            return
        again = sum(each.record_count for each in deliveries if each.redelivery_count)
        if again:
            self._partition.count_redelivered(self._subscription, again)
        self._deliver(deliveries)

    def _report_read_position(self, position: Position) -> None:
        if self._on_read_position is not None and not self._is_ended:
            self._on_read_position(position)

    def _on_disconnected(self, error: SubscriptionsError | None) -> None:
        """End the link: the subscription was reset (None), or deleted."""
        if error is None:
            self._end(None)
        elif isinstance(error, SubscriptionClosed):
            name, partition = self._subscription.name, self._partition.name
            self._end(SubscriptionNotFound(f"subscription {name!r} of {partition} was deleted"))
        else:
            self._end(native_error(error))

    def _on_partition_ended(self, ended: PartitionEnded) -> None:
        self._end(native_error(ended))

    def _end(self, error: KledgerError | None) -> None:
        if not self._is_ended:
            self._mark_ended()
            self._on_ended(error)

    def _mark_ended(self) -> None:
        self._is_ended = True
        self._partition.remove_listener(self._on_partition_ended)
