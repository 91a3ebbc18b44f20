"""One consumer's hold on a subscription.

Rule: it counts until it has left or was let go, which happens at once; from then on whatever it
says is passed over without an error. What is acknowledged is true for the cursor and for the
dispatcher in one step, and durable when the call returns.
Must not know: who else is there, how a position is set.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from kledger.ledger import Cursor, ManagedLedger
from kledger.subscriptions.acknowledgement_plan import entry_part, record_mask
from kledger.subscriptions.dispatch.dispatcher import Dispatcher
from kledger.subscriptions.error_map import translating
from kledger.subscriptions.errors import InvalidRequest, SubscriptionsError
from kledger.subscriptions.model import Acknowledgement, RecordMask

OnEnded: TypeAlias = Callable[[SubscriptionsError | None], None]
"""Called once when a consumer was let go without having left; plain, on the loop, must not raise.
None: it may join again at once, as after a reset; SubscriptionClosed: it is over."""


class SubscriptionConsumer:
    """Made by `Subscription.add_consumer`."""

    def __init__(
        self,
        name: str,
        number: int,
        cursor: Cursor,
        dispatcher: Dispatcher,
        ledger: ManagedLedger,
        *,
        allows_upto: bool,
        on_ended: OnEnded,
        on_left: Callable[["SubscriptionConsumer"], Awaitable[None]],
    ) -> None:
        """Make the hold of a consumer that the dispatcher has taken.

        Args:
            name: as the consumer calls itself.
            number: as the dispatcher calls it.
            cursor: of the subscription.
            dispatcher: of the subscription.
            ledger: of the partition.
            allows_upto: whether all before an entry can be acknowledged.
            on_ended: hears of an end that it has not made itself.
            on_left: called when it has left by itself.
        """
        self.name = name
        self.is_ended = False
        """Whether it has left or was let go."""
        self._number = number
        self._cursor = cursor
        self._dispatcher = dispatcher
        self._ledger = ledger
        self._allows_upto = allows_upto
        self._on_ended = on_ended
        self._on_left = on_left

    def add_permits(self, count: int) -> None:
        """Allow that many more records to be delivered. Raises InvalidRequest."""
        if not self.is_ended:
            self._dispatcher.add_permits(self._number, count)

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Acknowledge records, all or none; return when that is as durable as an append.

        Raises:
            InvalidRequest: one names no record that could have been delivered.
            StorageFailed: it counts, but is not durable yet.
            SubscriptionClosed: it is over.
        """
        if self.is_ended:
            return
        parts = [entry_part(each) for each in acknowledgements]
        with translating():
            self._cursor.acknowledge_nowait(parts)
            self._dispatcher.acknowledged(
                [
                    record_mask(each, part)
                    for each, part in zip(acknowledgements, parts, strict=True)
                ]
            )
            await self._cursor.wait_durable()

    async def acknowledge_upto(self, acknowledgement: Acknowledgement) -> None:
        """Acknowledge all before an entry, and these records of it; else as `acknowledge`.

        Raises:
            InvalidRequest: consumers share the messages, too.
        """
        if self.is_ended:
            return
        if not self._allows_upto:
            raise InvalidRequest("all before a message cannot be acknowledged where others share")
        part = entry_part(acknowledgement)
        before = self._ledger.previous_position(acknowledgement.position)
        with translating():
            self._cursor.acknowledge_nowait([part], upto=before)
            self._dispatcher.acknowledged_upto(*record_mask(acknowledgement, part))
            await self._cursor.wait_durable()

    def redeliver(self, masks: Sequence[RecordMask] | None) -> None:
        """Let records come again: these, or all that this consumer has not acknowledged."""
        if not self.is_ended:
            self._dispatcher.redeliver(self._number, masks)

    async def close(self) -> None:
        """Leave; what was not acknowledged goes to others. May be repeated."""
        if not self.is_ended:
            self._disconnect()
            await self._on_left(self)

    def end(self, error: SubscriptionsError | None) -> None:
        """Be let go; only for the subscription."""
        on_ended = self._on_ended
        self._disconnect()
        on_ended(error)

    def _disconnect(self) -> None:
        self.is_ended = True
        self._on_ended = _ignore_end
        self._dispatcher.remove_consumer(self._number)


def _ignore_end(_error: SubscriptionsError | None) -> None:
    """It has ended already."""
