"""SubscribedPartition: one open partition, with its log and its subscriptions.

Rule: it ends once: when its topic is deleted, its log is closed or the server stops. Listeners get
the reason before calls in progress fail because of it; an error of a call after the end is reported
as the end.
Must not know: what its listeners do, other partitions.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from kledger.delivery.backlog import count_backlog
from kledger.delivery.errors import (
    PartitionClosed,
    PartitionDeleted,
    PartitionEnded,
    ServerStopping,
)
from kledger.delivery.model import LATEST, SeekTarget
from kledger.delivery.rate_state import RateState
from kledger.delivery.read_committed_filter import ReadCommittedFilter
from kledger.delivery.record_locations import find_compacted_start, find_start
from kledger.runtime.clock import Clock
from kledger.runtime.containment import FaultUnit, NamedUnit, unit_of
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.subscriptions.model import StartPosition
from kledger.subscriptions.partition_subscriptions import PartitionSubscriptions
from kledger.subscriptions.subscription import Subscription
from kledger.topics import PartitionLog, Topic

Result = TypeVar("Result")
EndListener: TypeAlias = Callable[[PartitionEnded], None]


class SubscribedPartition:
    """Made by the directory, one per open `PartitionLog`."""

    def __init__(
        self,
        topic: Topic,
        log: PartitionLog,
        *,
        clock: Clock,
        timers: Timers,
        supervisor: Supervisor,
    ) -> None:
        self.topic = topic
        self.log = log
        self.visibility_filter = ReadCommittedFilter(log)
        self.subscriptions = PartitionSubscriptions(
            log.managed_ledger,
            visibility_filter=self.visibility_filter,
            partition_index=log.index,
            clock=clock,
            timers=timers,
            supervisor=supervisor,
            compute_pool=log.compute_pool,
        )
        self.end_error: PartitionEnded | None = None
        """Why it has ended; None while it is open."""
        self._clock = clock
        self._supervisor = supervisor
        self._listeners: dict[EndListener, FaultUnit] = {}
        self._links: set[EndListener] = set()
        self._redelivery_rates: WeakKeyDictionary[Subscription, RateState] = WeakKeyDictionary()
        log.add_listener(self._on_log_changed, log)

    @property
    def name(self) -> str:
        """TOPIC-INDEX, for messages."""
        return self.log.unit_name

    def add_listener(
        self, listener: EndListener, unit: FaultUnit | None = None, *, keeps_open: bool = True
    ) -> None:
        """Call back, on the event loop, once when the partition ends.

        Args:
            listener: called with the reason.
            unit: what a fault of it closes.
            keeps_open: whether the partition counts as used, and is not closed as idle, until the
                listener is removed.
        """
        self._listeners[listener] = unit or unit_of(listener, "listener")
        if keeps_open:
            self._links.add(listener)
        self._update_idle()

    def remove_listener(self, listener: EndListener) -> None:
        """Stop calling back; without effect when it is not registered."""
        self._listeners.pop(listener, None)
        self._links.discard(listener)
        self._update_idle()

    def _update_idle(self) -> None:
        self.log.idle.is_held = bool(self._links)

    # Positions of subscriptions

    async def open_subscription(
        self,
        name: str,
        start: SeekTarget,
        *,
        is_inclusive: bool = True,
        is_durable: bool = True,
        reads_compacted: bool = False,
    ) -> Subscription:
        """Return the subscription of a name; create it at `start` when there is none.

        Raises:
            SubscriptionsError, TopicsError, LedgerError, BatchError: it cannot be created.
        """
        if is_durable:
            await self.topic.register_cursor(name)
        known = self.subscriptions.get(name)
        if known is not None and not known.is_closed:
            return known

        def make(start_position: StartPosition) -> Awaitable[Subscription]:
            return self.subscriptions.open(
                name,
                start=start_position,
                is_durable=is_durable,
                reads_compacted=reads_compacted,
            )

        return await self._at_target(
            start, make, is_inclusive=is_inclusive, reads_compacted=reads_compacted
        )

    async def delete_subscription(self, name: str, *, force: bool = False) -> None:
        """Delete a subscription; see `PartitionSubscriptions.delete`.

        Raises:
            SubscriptionsError, TopicsError: it was not deleted.
        """
        await self.topic.remove_cursor(name)
        await self.subscriptions.delete(name, force=force)

    async def reset(
        self, subscription: Subscription, target: SeekTarget, *, is_inclusive: bool
    ) -> None:
        """Set a subscription to a target. Raises as `open_subscription`."""
        await self._at_target(
            target,
            subscription.reset,
            is_inclusive=is_inclusive,
            reads_compacted=subscription.cursor.reads_compacted,
        )

    async def clear_backlog(self, subscription: Subscription) -> None:
        """Acknowledge every visible record of a subscription. Raises as `open_subscription`."""
        if self.log.last_stable_offset == self.log.high_watermark:
            await subscription.clear_backlog()
        else:
            await self.reset(subscription, LATEST, is_inclusive=True)

    async def _at_target(
        self,
        target: SeekTarget,
        use: Callable[[StartPosition], Awaitable[Result]],
        *,
        is_inclusive: bool,
        reads_compacted: bool = False,
    ) -> Result:
        """Find the start of a target and use it.

        Records that were deleted from the log meanwhile are acknowledged.
        """
        log = self.log
        starts = log.log_start_offset, log.deleted_before_offset
        find = find_compacted_start if reads_compacted else find_start
        result = await use(await find(log, target, is_inclusive=is_inclusive))
        if starts != (log.log_start_offset, log.deleted_before_offset):
            await log.move_cursors_to_log_start()
        return result

    # Numbers of subscriptions

    async def backlog(self, subscription: Subscription) -> int:
        """Count its unacknowledged records. Raises TopicsError, LedgerError, BatchError."""
        return await count_backlog(self.log, subscription.cursor, self._clock)

    def count_redelivered(self, subscription: Subscription, count: int) -> None:
        """Count records that are redelivered."""
        rate = self._redelivery_rates.get(subscription)
        if rate is None:
            rate = self._redelivery_rates[subscription] = RateState()
        rate.add(count, self._clock.monotonic_ms())

    def redelivery_rate(self, subscription: Subscription) -> float:
        """Return the records redelivered per second, over the last minute."""
        rate = self._redelivery_rates.get(subscription)
        return 0.0 if rate is None else rate.per_second(self._clock.monotonic_ms())

    # Ending

    async def close(self) -> None:
        """End because the server stops, and close all subscriptions."""
        self._end(ServerStopping("the server is stopping"))
        await self.subscriptions.close()

    def _on_log_changed(self) -> None:
        """Called whenever the log changes; most often it has only grown."""
        if self.log.is_closed:
            deleted = PartitionDeleted(f"topic {self.topic.name} was deleted")
            closed = PartitionClosed(f"partition {self.name} was closed")
            self._end(deleted if self.topic.is_deleted else closed)
            unit = NamedUnit("background work", f"ending subscriptions of {self.name}")
            self._supervisor.spawn(self.subscriptions.close(), unit.unit_name, unit=unit)

    def _end(self, error: PartitionEnded) -> None:
        if self.end_error is not None:
            return
        self.end_error = error
        self.log.remove_listener(self._on_log_changed)
        listeners, self._listeners = self._listeners, {}
        self._links.clear()
        for listener, unit in listeners.items():
            self._supervisor.containment.run(unit, listener, error)
        self.subscriptions.end()
