"""All subscriptions of one partition, over its managed ledger. A shell.

Rule: a durable subscription is the durable cursor of its name, whoever has made that; others are
here from their making until their last consumer has left. When the managed ledger is closed, so
is everything here.
Must not know: topics, consumers' connections.
"""

from ledger import LATEST, ManagedLedger
from runtime.clock import Clock
from runtime.tasks import Supervisor
from runtime.timers import Timers
from subscriptions.model import Place
from subscriptions.subscription import Subscription

END = Place(LATEST)


class PartitionSubscriptions:
    """One per open partition that is asked for subscriptions."""

    def __init__(
        self,
        ledger: ManagedLedger,
        *,
        partition_index: int,
        clock: Clock,
        timers: Timers,
        supervisor: Supervisor,
    ) -> None:
        self._ledger = ledger

    def names(self) -> list[str]:
        """Return the names of the durable ones, sorted."""
        raise NotImplementedError

    def get(self, name: str) -> Subscription | None:
        """Return an open subscription, or None; durable ones are open from the start."""
        raise NotImplementedError

    async def open(self, name: str, *, start: Place = END, is_durable: bool = True) -> Subscription:
        """Return the subscription of a name; make it if there is none.

        Args:
            name: what the durable cursor is called, too.
            start: where a new one begins; of no meaning for one that exists.
            is_durable: False: it lives in memory, and is forgotten with its last consumer.

        Raises InvalidRequest, StorageFailed, SubscriptionClosed.
        """
        raise NotImplementedError

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete one; its consumers hear SubscriptionClosed.

        Raises SubscriptionNotFound, StorageFailed; ConsumerBusy while it has consumers, unless
        `force`.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """End all consumers with SubscriptionClosed and let go of all cursors; may be repeated."""
        raise NotImplementedError
