"""ServiceConsumer: the server's end of a consumer link.

Rule: what a client acknowledges is checked by the subscription. A link that was let go does nothing
more, and says nothing; why it was let go it says once.
Must not know: who gets what.
"""

from collections.abc import Sequence

from kledger.native.error_map import native_error, translating
from kledger.native.errors import KledgerError, SubscriptionNotFound
from kledger.native.seam import ConsumerRequest, Ended
from kledger.native.served_partition import ServedPartition
from kledger.native.service_checks import check_count
from kledger.subscriptions.errors import SubscriptionClosed, SubscriptionsError
from kledger.subscriptions.model import Acknowledgement, ConsumerOptions, Deliver, Delivery, Piece
from kledger.subscriptions.subscription import Subscription
from kledger.subscriptions.subscription_consumer import SubscriptionConsumer

PERMITS_MAX = 1 << 20
"""More at once are of no use to anybody."""


class ServiceConsumer:
    """A `native.seam.ConsumerLink`; made by `join`."""

    def __init__(
        self,
        partition: ServedPartition,
        subscription: Subscription,
        request: ConsumerRequest,
        *,
        deliver: Deliver,
        ended: Ended,
    ) -> None:
        self._partition = partition
        self._subscription = subscription
        self._request = request
        self._deliver = deliver
        self._ended = ended
        self._is_over = False
        self._held: SubscriptionConsumer | None = None

    async def join(self) -> None:
        """Become a consumer of the subscription.

        Raises:
            SubscriptionsError: why it cannot be.
        """
        request = self._request
        self._partition.add_listener(self._end)
        try:
            self._held = await self._subscription.add_consumer(
                ConsumerOptions(
                    name=request.consumer_name,
                    priority_level=request.priority_level,
                    key_ranges=request.key_ranges,
                    unacked_max=request.unacked_max,
                ),
                request.type,
                deliver=self._take,
                ended=self._let_go,
                unacked_subscription_max=request.unacked_subscription_max,
                failover_delay_ms=request.failover_delay_ms,
            )
        except BaseException:
            self._finish()
            raise

    def add_permits(self, count: int) -> None:
        """Allow that many more records to be delivered. Raises InvalidArgument."""
        check_count("permits", count, 1, PERMITS_MAX)
        if self._held is not None and not self._is_over:
            self._held.add_permits(count)

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Acknowledge records one by one; see `native.seam.ConsumerLink`."""
        if self._held is not None and not self._is_over:
            with self._partition.translating():
                await self._held.acknowledge(acknowledgements)

    async def acknowledge_upto(self, acknowledgement: Acknowledgement) -> None:
        """Acknowledge all before an entry, and those records of it."""
        if self._held is not None and not self._is_over:
            with self._partition.translating():
                await self._held.acknowledge_upto(acknowledgement)

    def redeliver(self, pieces: Sequence[Piece] | None) -> None:
        """Let records come again: these, or all that this consumer has not acknowledged."""
        if self._held is not None and not self._is_over:
            with translating():
                self._held.redeliver(pieces)

    async def close(self) -> None:
        """Leave the subscription; may be repeated."""
        self._finish()
        if self._held is not None:
            with translating():
                await self._held.close()

    # Called from below

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        if self._is_over:
            return
        again = sum(each.record_count for each in deliveries if each.redelivery_count)
        if again:
            self._partition.note_redelivered(self._subscription, again)
        self._deliver(deliveries)

    def _let_go(self, error: SubscriptionsError | None) -> None:
        """The subscription has let this consumer go: for a reset, or as it was deleted."""
        if error is None:
            self._end(None)
        elif isinstance(error, SubscriptionClosed):
            name, place = self._subscription.name, self._partition.name
            self._end(SubscriptionNotFound(f"subscription {name!r} of {place} was deleted"))
        else:
            self._end(native_error(error))

    def _end(self, error: KledgerError | None) -> None:
        if not self._is_over:
            self._finish()
            self._ended(error)

    def _finish(self) -> None:
        self._is_over = True
        self._partition.remove_listener(self._end)
