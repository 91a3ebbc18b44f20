"""SubscribedPartition: one open partition as native clients use it.

Rule: links live as long as the partition. When that is deleted or closed, by whatever façade, every
link hears of it at once, and before anything that is under way fails because of it.
Must not know: how links are used, other partitions.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from weakref import WeakKeyDictionary

from kledger.native.broker import LATEST, SeekTarget
from kledger.native.errors import KledgerError, TopicNotFound, Unavailable
from kledger.native.server.backlog import count_backlog
from kledger.native.server.error_map import translating
from kledger.native.server.rate_state import RateState
from kledger.native.server.read_committed_filter import ReadCommittedFilter
from kledger.native.server.seek_target import find_start
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit, unit_of
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.subscriptions.model import StartPosition
from kledger.subscriptions.partition_subscriptions import PartitionSubscriptions
from kledger.subscriptions.subscription import Subscription
from kledger.topics import PartitionLog, Topic

Result = TypeVar("Result")


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
        self._end_error: KledgerError | None = None
        self._clock = clock
        self._supervisor = supervisor
        self._listeners: dict[Callable[[KledgerError], None], bool] = {}
        self._redelivery_rates: WeakKeyDictionary[Subscription, RateState] = WeakKeyDictionary()
        log.add_listener(self._on_log_changed, log)

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.topic.name}-{self.log.index}"

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Let errors leave a block in the words of clients; all that follow its end as that."""
        try:
            with translating():
                yield
        except KledgerError:
            end = self._end_error
            if end is not None:
                raise type(end)(str(end)) from None
            raise

    def add_listener(
        self, listener: Callable[[KledgerError], None], *, keeps_open: bool = True
    ) -> None:
        """Call back, on the loop, once when the partition ends; a link keeps it from being idle."""
        self._listeners[listener] = keeps_open
        self._keep_open()

    def remove_listener(self, listener: Callable[[KledgerError], None]) -> None:
        """Stop calling back; nothing if it was not there."""
        self._listeners.pop(listener, None)
        self._keep_open()

    def _keep_open(self) -> None:
        """Keep the log open while a link needs it."""
        self.log.idle.is_held = any(self._listeners.values())

    # Places of subscriptions

    async def open_subscription(
        self, name: str, start: SeekTarget, *, is_inclusive: bool = True, is_durable: bool = True
    ) -> Subscription:
        """Return the subscription of a name, made at `start` when there is none.

        Raises:
            SubscriptionsError, TopicsError, LedgerError, BatchError: it cannot be made.
        """
        known = self.subscriptions.get(name)
        if known is not None and not known.is_closed:
            return known

        def make(start_position: StartPosition) -> Awaitable[Subscription]:
            return self.subscriptions.open(name, start=start_position, is_durable=is_durable)

        return await self._at_target(start, make, is_inclusive=is_inclusive)

    async def reset(
        self, subscription: Subscription, target: SeekTarget, *, is_inclusive: bool
    ) -> None:
        """Let a subscription go on at a target. Raises as `open_subscription`."""
        await self._at_target(target, subscription.reset, is_inclusive=is_inclusive)

    async def clear_backlog(self, subscription: Subscription) -> None:
        """Let a subscription go on behind all that can be seen. Raises as `open_subscription`."""
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
    ) -> Result:
        """Find a place and use it; what has gone in between is owed to nobody all the same."""
        log, start_offset = self.log, self.log.log_start_offset
        result = await use(await find_start(log, target, is_inclusive=is_inclusive))
        if start_offset != log.log_start_offset:
            start = await log.locate(log.log_start_offset)
            log.managed_ledger.acknowledge_before(
                start.position, records=start.batch_index, batch_size=start.batch_size
            )
        return result

    # Numbers of subscriptions

    async def backlog(self, subscription: Subscription) -> int:
        """Return how many records it is owed. Raises TopicsError, LedgerError, BatchError."""
        return await count_backlog(self.log, subscription.cursor, self._clock)

    def count_redelivered(self, subscription: Subscription, count: int) -> None:
        """Count records that are handed out again."""
        rate = self._redelivery_rates.get(subscription)
        if rate is None:
            rate = self._redelivery_rates[subscription] = RateState()
        rate.note(count, self._clock.monotonic_ms())

    def redelivery_rate(self, subscription: Subscription) -> float:
        """Records handed out again in a second, over the last minute."""
        rate = self._redelivery_rates.get(subscription)
        return 0.0 if rate is None else rate.per_second(self._clock.monotonic_ms())

    # Ending

    async def close(self) -> None:
        """End the links because the server stops, and let go of all subscriptions."""
        self._end(Unavailable("the server is stopping"))
        await self.subscriptions.close()

    def _on_log_changed(self) -> None:
        """The log has changed; mostly it has only grown."""
        if self.log.is_closed:
            gone = TopicNotFound(f"topic {self.topic.name} was deleted")
            closed = Unavailable(f"partition {self.name} was closed")
            self._end(gone if self.topic.is_deleted else closed)
            unit = NamedUnit("background work", f"ending subscriptions of {self.name}")
            self._supervisor.spawn(self.subscriptions.close(), unit.unit_name, unit=unit)

    def _end(self, error: KledgerError) -> None:
        if self._end_error is not None:
            return
        self._end_error = error
        self.log.remove_listener(self._on_log_changed)
        listeners, self._listeners = self._listeners, {}
        for listener in listeners:
            self._supervisor.containment.run(unit_of(listener, "native link"), listener, error)
        self.subscriptions.end()
