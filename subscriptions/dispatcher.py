"""Dispatcher: reads one cursor and hands out to the consumers of one type. A shell.

Rule: the state of the type decides who gets what; what was read under one revision of the cursor is
never handed out under another: that is checked when a read is complete and again right before
`deliver`. What shall come again is read before what is new.
Must not know: how acknowledgements become durable, connections, topics.
Theory: docs/ARCHITECTURE.md, "Dispatchers".
"""

from collections.abc import Iterable, Sequence

from ledger import Cursor, Position
from runtime.clock import Clock
from runtime.tasks import Supervisor
from runtime.timers import Timers
from subscriptions.dispatch_options import DispatchOptions
from subscriptions.model import ConsumerOptions, Deliver, Piece, SubscriptionType


class Dispatcher:
    """One per subscription for as long as its type stays; without consumers it is at rest.

    Keeping it while nobody is connected keeps how often records were handed out.
    """

    def __init__(
        self,
        cursor: Cursor,
        subscription_type: SubscriptionType,
        options: DispatchOptions,
        *,
        clock: Clock,
        timers: Timers,
        supervisor: Supervisor,
    ) -> None:
        """Args: cursor: nobody else may read it sequentially while there are consumers."""

    # Looking

    @property
    def consumer_names(self) -> tuple[str, ...]:
        """Who is here, in the order in which they joined."""
        raise NotImplementedError

    @property
    def unacknowledged(self) -> int:
        """How many records are handed out and not acknowledged.

        Exclusive and failover count no further than `UNACKED_COUNTED_MAX` entries.
        """
        raise NotImplementedError

    @property
    def delayed(self) -> int:
        """How many records wait for their time."""
        raise NotImplementedError

    @property
    def redelivered(self) -> int:
        """How many records were handed out that had been handed out before."""
        raise NotImplementedError

    @property
    def is_closed(self) -> bool:
        """Whether it hands out nothing any more: it was closed, or its cursor was."""
        raise NotImplementedError

    def is_active(self, consumer: int) -> bool:
        """Tell whether a consumer gets anything: of failover the chosen one, else everybody."""
        raise NotImplementedError

    # Consumers

    def add_consumer(self, options: ConsumerOptions, deliver: Deliver) -> int:
        """Let a consumer join; return its number, which is never given again.

        The first one after none begins with everything that is not acknowledged: the cursor is
        rewound in a revision of its own. `deliver` is called from tasks of the dispatcher only,
        never from within another call.

        Raises:
            ConsumerBusy: exclusive has one already; or some have key ranges and others have none.
            ConsumerAssign: its key ranges overlap those of another one.
            InvalidRequest: its key ranges or limits cannot be.
            SubscriptionFenced: a revision of the cursor runs.
            SubscriptionClosed: the dispatcher is closed.
        """
        raise NotImplementedError

    def remove_consumer(self, consumer: int) -> None:
        """Let a consumer go; one that is not here is passed over.

        What it has not acknowledged is handed out again: to others at once (shared, key_shared), or
        to the next active one from the cursor. When nobody is left, reading stops.
        """
        raise NotImplementedError

    def add_permits(self, consumer: int, count: int) -> None:
        """Let a consumer get that many more records; of one that has left, nothing.

        Raises:
            InvalidRequest: the count is not positive.
        """
        raise NotImplementedError

    def redeliver(self, consumer: int, pieces: Sequence[Piece] | None) -> None:
        """Hand out again what a consumer has: these pieces, or all (None).

        Exclusive and failover go back to everything that is not acknowledged, in order; from others
        than the active consumer that is ignored, as are pieces that the consumer does not have.
        """
        raise NotImplementedError

    # Following the cursor

    def acknowledged(self, pieces: Iterable[Piece]) -> None:
        """Tell what the cursor took; whoever had it, and unknown pieces, do not matter."""
        raise NotImplementedError

    def acknowledged_upto(self, position: Position, records: int) -> None:
        """Tell that the cursor took all entries before a position, and these records of it."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget everything but the consumers and their permits: positions are being set.

        For whoever revises the cursor, between the start and the end of the revision, in the step
        that sets the positions. Redelivery counts begin anew.
        """
        raise NotImplementedError

    def resume(self) -> None:
        """Go on after a revision has ended; whoever started one must say so."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop reading, let all consumers go. May be repeated; the cursor stays open."""
        raise NotImplementedError
