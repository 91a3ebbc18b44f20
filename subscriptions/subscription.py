"""Subscription: one cursor of one partition and the consumers that share it. A shell.

Rule: the type is that of the first consumer for as long as any is connected. Whatever sets the
cursor's position fences the subscription, lets all consumers go, and changes the cursor and the
dispatcher in one step; what a consumer from before acknowledges afterwards does not count.
Must not know: who of the consumers gets what, topics, connections.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ledger import Cursor, ManagedLedger
from runtime.clock import Clock
from runtime.tasks import Supervisor
from runtime.timers import Timers
from subscriptions.errors import SubscriptionsError
from subscriptions.model import (
    Acknowledgement,
    ConsumerOptions,
    Deliver,
    Delivery,
    Piece,
    Place,
    SubscriptionStats,
    SubscriptionType,
)

Ended: TypeAlias = Callable[[SubscriptionsError | None], None]
"""Called once when a consumer was let go without having closed; plain, on the loop, must not raise.
None: it may join again at once, as after a reset; SubscriptionClosed: it is over."""


class SubscriptionConsumer:
    """One consumer's hold on a subscription; made by `Subscription.add_consumer`."""

    @property
    def is_ended(self) -> bool:
        """Whether it has left or was let go: nothing that it says counts any more."""
        raise NotImplementedError

    def add_permits(self, count: int) -> None:
        """Allow that many more records to be delivered."""
        raise NotImplementedError

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Acknowledge records; return when that is as durable as an append.

        Nothing happens when the consumer is ended. Raises InvalidRequest, StorageFailed,
        SubscriptionClosed.
        """
        raise NotImplementedError

    async def acknowledge_upto(self, acknowledgement: Acknowledgement) -> None:
        """Acknowledge all before an entry, and these records of it; else as `acknowledge`.

        Raises InvalidRequest where consumers share the messages.
        """
        raise NotImplementedError

    def redeliver(self, pieces: Sequence[Piece] | None) -> None:
        """Let records come again: these, or all that this consumer has not acknowledged."""
        raise NotImplementedError

    async def close(self) -> None:
        """Leave; what was not acknowledged goes to others. May be repeated."""
        raise NotImplementedError


class Subscription:
    """Made by `PartitionSubscriptions`."""

    def __init__(
        self,
        name: str,
        cursor: Cursor,
        ledger: ManagedLedger,
        *,
        partition_index: int,
        clock: Clock,
        timers: Timers,
        supervisor: Supervisor,
        forget: Callable[["Subscription"], None],
    ) -> None:
        """Args: forget: called when it is closed, deleted, or over with its last consumer."""
        self.name = name
        self.cursor = cursor

    @property
    def type(self) -> SubscriptionType | None:
        """Who gets what; None while no consumer is connected."""
        raise NotImplementedError

    @property
    def is_durable(self) -> bool:
        """Whether it outlives its consumers."""
        raise NotImplementedError

    @property
    def is_fenced(self) -> bool:
        """Whether its position is being set: nobody can join."""
        raise NotImplementedError

    async def add_consumer(
        self,
        options: ConsumerOptions,
        wanted: SubscriptionType,
        *,
        deliver: Deliver,
        ended: Ended,
        unacked_subscription_max: int = 200_000,
        failover_delay_ms: int = 1_000,
    ) -> SubscriptionConsumer:
        """Join as one of the `wanted` type; nothing is delivered before there are permits.

        Raises ConsumerBusy, ConsumerAssign, InvalidRequest, SubscriptionFenced (try again soon),
        SubscriptionClosed.
        """
        raise NotImplementedError

    async def reset(self, place: Place) -> None:
        """Owe everything from there on and nothing before it; consumers are let go with None.

        It is durable first and true afterwards. Raises SubscriptionFenced when another one runs,
        StorageFailed (nothing changed), SubscriptionClosed.
        """
        raise NotImplementedError

    async def skip(self, count: int) -> None:
        """Acknowledge the next so many records that are owed; else as `reset`."""
        raise NotImplementedError

    async def clear_backlog(self) -> None:
        """Acknowledge everything that is there; else as `reset`."""
        raise NotImplementedError

    async def rewind(self) -> None:
        """Deliver everything again that is not acknowledged; else as `reset`."""
        raise NotImplementedError

    async def peek(self, count: int) -> list[Delivery]:
        """Return the next entries that are owed, and which of their records; nothing changes."""
        raise NotImplementedError

    def stats(self) -> SubscriptionStats:
        """Return its numbers."""
        raise NotImplementedError

    def disconnect_all(self, error: SubscriptionsError | None = None) -> None:
        """Let all consumers go; they hear `ended(error)`."""
        raise NotImplementedError

    async def close(self, *, force: bool = True) -> None:
        """Let go of the cursor. Raises ConsumerBusy while there are consumers, without `force`.

        Those hear SubscriptionClosed. May be repeated.
        """
        raise NotImplementedError
