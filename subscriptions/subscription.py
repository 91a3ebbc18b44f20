"""Subscription: one cursor of one partition and the consumers that share it. A shell.

Rule: the type is that of the first consumer for as long as any is connected. Whoever sets the
cursor's position fences the subscription, lets all consumers go, and changes the cursor and the
dispatcher in one step; what a consumer from before acknowledges afterwards does not count.
Must not know: who of the consumers gets what, topics, connections.
Theory: docs/ARCHITECTURE.md, "Subscriptions".
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from kledger.ledger import Cursor, CursorState, EntryPart, ManagedLedger, Position
from kledger.runtime.clock import Clock
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.containment import NamedUnit
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import TimerHandle, Timers
from kledger.subscriptions.acknowledgement_plan import indexes_of
from kledger.subscriptions.dispatch.dispatcher import Dispatcher
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.error_map import translating
from kledger.subscriptions.errors import (
    ConsumerBusy,
    InvalidRequest,
    SubscriptionClosed,
    SubscriptionFailed,
    SubscriptionFenced,
    SubscriptionsError,
)
from kledger.subscriptions.model import (
    ConsumerOptions,
    Deliver,
    Delivery,
    PartitionSubscriptionStats,
    StartPosition,
    SubscriptionType,
)
from kledger.subscriptions.subscription_consumer import OnEnded, SubscriptionConsumer
from kledger.subscriptions.unacknowledged_entries import UnacknowledgedEntry, unacknowledged_entries
from kledger.subscriptions.visibility_filter import VisibilityFilter

CONSUMERS_MAX = 10_000
"""So many consumers share one subscription of one partition at most."""
NON_DURABLE_IDLE_MS = 60_000
"""How long one that is not durable waits for its consumers: when it was made, and when they were
let go for a reset."""
UNACKNOWLEDGED = "pulsar_subscription_unacked_messages"
REDELIVERED = "subscription_redelivered"
PEEK_ENTRIES_MAX = 1_000
"""No look ahead returns more entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionContext:
    """What a subscription knows of its partition.

    Attributes:
        ledger: whose entries are handed out.
        visibility_filter: which of them may be.
        partition_index: spreads the active consumers of a topic's partitions.
        forget: called when a subscription is over, or closed.
        compute_pool: do what takes too long for the loop.
    """

    ledger: ManagedLedger
    visibility_filter: VisibilityFilter
    partition_index: int
    clock: Clock
    timers: Timers
    supervisor: Supervisor
    forget: Callable[["Subscription"], None]
    compute_pool: ComputePool | None = None


class Subscription:
    """Made by `PartitionSubscriptions`."""

    unit_kind = "subscription"

    def __init__(
        self,
        name: str,
        cursor: Cursor,
        context: SubscriptionContext,
        *,
        consumers_max: int = CONSUMERS_MAX,
    ) -> None:
        self.name = name
        self.cursor = cursor
        self.is_fenced = False
        """Whether its position is being set: nobody can join."""
        self.is_closed = False
        self._context = context
        self._consumers_max = consumers_max
        self._consumers: dict[SubscriptionConsumer, None] = {}  # in the order of their joining
        self._dispatcher: Dispatcher | None = None
        self._type: SubscriptionType | None = None
        self._options: DispatchOptions | None = None
        self._redelivered_before = 0
        self._lock = asyncio.Lock()
        self._idle_timer: TimerHandle | None = None
        show = context.ledger.show_user_metric
        show(cursor, UNACKNOWLEDGED, lambda: self.unacknowledged, "records that consumers have")
        show(cursor, REDELIVERED, lambda: self.redelivered, "records that were handed out again")
        self._start_idle_timer()

    # Looking

    @property
    def type(self) -> SubscriptionType | None:
        """Who gets what; None while no consumer is connected."""
        return self._type if self._consumers else None

    @property
    def unit_name(self) -> str:
        """See `runtime.containment.FaultUnit`."""
        return f"{self.name} of {self._context.ledger.name}"

    @property
    def is_durable(self) -> bool:
        """Whether it outlives its consumers."""
        return self.cursor.is_durable

    @property
    def consumer_count(self) -> int:
        """How many are connected."""
        return len(self._consumers)

    @property
    def unacknowledged(self) -> int:
        """How many records consumers have; as `Dispatcher.unacknowledged` counts."""
        return 0 if self._dispatcher is None else self._dispatcher.unacknowledged

    @property
    def redelivered(self) -> int:
        """How many records were handed out that had been handed out before."""
        dispatcher = self._dispatcher
        return self._redelivered_before + (0 if dispatcher is None else dispatcher.redelivered)

    def stats(self) -> PartitionSubscriptionStats:
        """Return its numbers."""
        dispatcher, revision = self._dispatcher, self.cursor.revision
        return PartitionSubscriptionStats(
            type=self.type,
            backlog_entries=self.cursor.backlog,
            unacknowledged=self.unacknowledged,
            consumers=tuple(consumer.name for consumer in self._consumers),
            redelivered=self.redelivered,
            delayed=0 if dispatcher is None else dispatcher.delayed,
            revision_num=revision.number,
            is_under_revision=revision.is_running,
        )

    async def peek(self, count: int) -> list[Delivery]:
        """Return the next entries that are owed, and which of their records; nothing changes.

        Raises:
            InvalidRequest: the count is not within 1 to `PEEK_ENTRIES_MAX`.
            StorageFailed, SubscriptionClosed: they cannot be read.
        """
        if not 0 < count <= PEEK_ENTRIES_MAX:
            raise InvalidRequest(f"count: expected 1 to {PEEK_ENTRIES_MAX}, got {count}")
        self._check_open()
        found: list[Delivery] = []
        with translating():
            async for unacknowledged_entry in self._unacknowledged_entries():
                if unacknowledged_entry.records:
                    found.append(
                        Delivery(
                            unacknowledged_entry.entry.position,
                            unacknowledged_entry.entry.buffer,
                            unacknowledged_entry.records,
                            0,
                        )
                    )
                if len(found) == count:
                    break
        return found

    # Consumers

    async def add_consumer(
        self,
        options: ConsumerOptions,
        wanted: SubscriptionType,
        *,
        deliver: Deliver,
        on_ended: OnEnded,
        unacked_subscription_max: int = 200_000,
        failover_delay_ms: int = 1_000,
    ) -> SubscriptionConsumer:
        """Join as one of the `wanted` type; nothing is delivered before there are permits.

        Args:
            options: what it wants for itself.
            wanted: the type; that of those who are connected, if any are.
            deliver: takes what it gets.
            on_ended: hears when it was let go.
            unacked_subscription_max: of all together; the first one's holds.
            failover_delay_ms: as the one before.

        Raises:
            ConsumerBusy, ConsumerAssign: others are in the way.
            InvalidRequest: an option cannot be.
            SubscriptionFenced: its position is being set; try again soon.
            SubscriptionClosed: it is over.
        """
        dispatch_options = DispatchOptions(
            unacked_subscription_max=unacked_subscription_max,
            failover_delay_ms=failover_delay_ms,
            partition_index=self._context.partition_index,
        )
        self._check_admits(wanted)
        async with self._lock:
            self._check_admits(wanted)
            dispatcher = await self._dispatcher_for(wanted, dispatch_options)
            # A fence or the end may have come while another dispatcher was put away.
            self._check_admits(wanted)
            number = dispatcher.add_consumer(options, deliver)
            consumer = SubscriptionConsumer(
                options.name,
                number,
                self.cursor,
                dispatcher,
                self._context.ledger,
                allows_upto=wanted in {SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER},
                on_ended=on_ended,
                on_left=self._on_consumer_left,
            )
            self._consumers[consumer] = None
            self._cancel_idle_timer()
            return consumer

    def disconnect_all(self, error: SubscriptionsError | None = None) -> None:
        """Let all consumers go; they hear `on_ended(error)`."""
        contain = self._context.supervisor.containment.run
        for consumer in tuple(self._consumers):
            del self._consumers[consumer]
            contain(NamedUnit("consumer", consumer.name), consumer.end, error)
        self._start_idle_timer()

    # Setting the position

    async def reset(self, start: StartPosition) -> None:
        """Owe everything from a place on and nothing before it.

        All consumers are let go, and hear `on_ended(None)`. It is durable first and true
        afterwards.

        Raises:
            SubscriptionFenced: its position is being set already.
            InvalidRequest: the place is not within its batch.
            StorageFailed: nothing was changed.
            SubscriptionClosed: it is over.
        """
        check_start(start)
        position, index, size = start

        def edit(state: CursorState) -> None:
            state.reset_to(position, acknowledged=range(index), batch_size=size)

        await self._set_position(lambda: self._revise(edit))

    async def skip(self, count: int) -> None:
        """Acknowledge the next so many records that are owed; else as `reset`."""
        if count <= 0:
            raise InvalidRequest(f"count: expected a positive number, got {count}")
        await self._set_position(lambda: self._skip(count))

    async def clear_backlog(self) -> None:
        """Acknowledge everything that is there; else as `reset`."""

        def edit(state: CursorState) -> None:
            state.acknowledge([], upto=state.last_confirmed)
            state.rewind()

        await self._set_position(lambda: self._revise(edit))

    async def rewind(self) -> None:
        """Hand out everything again that is not acknowledged; else as `reset`."""
        await self._set_position(self._rewind)

    # Ending

    def end(self, how: str = "closed") -> None:
        """Let nothing happen any more; who is connected hears SubscriptionClosed."""
        if not self.is_closed:
            self._end(SubscriptionClosed(f"subscription {self.name} was {how}"))

    def close_after_fault(self, error: Exception) -> None:
        """Close at once; who is connected hears SubscriptionFailed, and may open it anew."""
        if self.is_closed:
            return
        if self._dispatcher is not None:
            self._dispatcher.stop()  # its state is in doubt: nothing is asked of it any more
        self._end(SubscriptionFailed(f"subscription {self.name} was closed after a fault"))
        supervisor = self._context.supervisor
        if not supervisor.is_closed:
            unit = NamedUnit("background work", f"closing {self.unit_name}")
            supervisor.spawn(self._close_quietly(), unit.unit_name, unit=unit)

    def _end(self, error: SubscriptionsError) -> None:
        self.is_closed = True
        self._cancel_idle_timer()
        self.disconnect_all(error)

    async def close(self, *, force: bool = True) -> None:
        """Let go of the cursor; who is connected hears SubscriptionClosed. May be repeated.

        Raises:
            ConsumerBusy: there are consumers, and no `force`.
            StorageFailed: what was acknowledged last is not durable.
        """
        self._check_can_end(force=force)
        self.end("closed")
        if self._context.supervisor.is_closed:
            await self._close()
        else:
            # Stopped halfway, one that nobody asks for again would stay for ever.
            await self._context.supervisor.finish(self._close(), f"close {self.name}")

    async def delete(self, *, force: bool = False) -> None:
        """Be no more; else as `close`.

        Raises:
            ConsumerBusy: there are consumers, and no `force`.
            StorageFailed: it is as before, without consumers.
            SubscriptionClosed: it is over already.
        """
        if not self.is_durable:
            await self.close(force=force)
            return
        self._check_open()
        self._check_can_end(force=force)
        self.end("deleted")
        async with self._lock:
            await self._close_dispatcher()
            try:
                with translating():
                    await self._context.ledger.delete_cursor(self.name)
            finally:
                self.is_closed = self.cursor.is_closed
                if self.is_closed:
                    self._context.forget(self)

    async def _close(self) -> None:
        async with self._lock:
            await self._close_dispatcher()
            self._context.forget(self)
            with translating():
                await self.cursor.close()

    # Inside: consumers

    def _check_open(self) -> None:
        if self.is_closed or self._context.supervisor.is_closed:
            raise SubscriptionClosed(f"subscription {self.name} is closed")

    def _check_not_fenced(self) -> None:
        self._check_open()
        if self.is_fenced:
            raise SubscriptionFenced(f"the position of subscription {self.name} is being set")

    def _check_admits(self, wanted: SubscriptionType) -> None:
        self._check_not_fenced()
        if self._consumers and wanted is not self._type:
            raise ConsumerBusy(
                f"subscription {self.name} is {self._type}, a consumer wants {wanted}"
            )
        if len(self._consumers) >= self._consumers_max:
            raise ConsumerBusy(f"subscription {self.name} has {self._consumers_max} consumers")

    async def _dispatcher_for(
        self, wanted: SubscriptionType, options: DispatchOptions
    ) -> Dispatcher:
        """Return the dispatcher of the type; one that nobody is with may give way to it."""
        known = self._dispatcher
        is_wanted = wanted is self._type and (self._consumers or options == self._options)
        if known is not None and is_wanted and not known.is_closed:
            return known
        await self._close_dispatcher()
        self._type, self._options = wanted, options
        context = self._context
        self._dispatcher = Dispatcher(
            self.cursor,
            wanted,
            options,
            clock=context.clock,
            timers=context.timers,
            supervisor=context.supervisor,
            compute_pool=context.compute_pool,
            visibility_filter=context.visibility_filter,
            unit=self,
        )
        return self._dispatcher

    async def _close_dispatcher(self) -> None:
        if self._dispatcher is not None:
            await self._dispatcher.close()
            self._redelivered_before += self._dispatcher.redelivered
            self._dispatcher = None

    async def _on_consumer_left(self, consumer: SubscriptionConsumer) -> None:
        """A consumer has left by itself."""
        self._consumers.pop(consumer, None)
        if not (self._consumers or self.is_durable or self.is_fenced or self.is_closed):
            await self.close()

    def _check_can_end(self, *, force: bool) -> None:
        if self._consumers and not force:
            raise ConsumerBusy(f"subscription {self.name} has {len(self._consumers)} consumers")

    # Inside: one that is not durable waits for consumers, but not for ever

    def _start_idle_timer(self) -> None:
        if not (self.is_durable or self.is_closed or self._context.supervisor.is_closed):
            self._cancel_idle_timer()
            self._idle_timer = self._context.timers.call_after(
                NON_DURABLE_IDLE_MS, self._on_idle, self
            )

    def _cancel_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _on_idle(self) -> None:
        self._idle_timer = None
        if not (self._consumers or self.is_closed):
            self._context.supervisor.spawn(self._close_quietly(), f"forget {self.name}", unit=self)

    async def _close_quietly(self) -> None:
        try:
            await self.close()
        except SubscriptionsError:
            return  # a durable cursor writes what is not when it is opened, or closed again

    # Inside: setting the position

    async def _set_position(self, work: Callable[[], Awaitable[None]]) -> None:
        """Fence, let all consumers go, do it to its end, and let consumers join again."""
        self._check_not_fenced()
        self.is_fenced = True
        self.disconnect_all(None)
        await self._context.supervisor.finish(self._run_fenced(work), f"set {self.name}")

    async def _run_fenced(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            async with self._lock:
                self._check_open()
                with translating():
                    await work()
        finally:
            self.is_fenced = False
            self._start_idle_timer()

    async def _revise(self, edit: Callable[[CursorState], object]) -> None:
        try:
            await self.cursor.revise(edit, alongside=self._clear)
        finally:
            if self._dispatcher is not None:
                self._dispatcher.resume()

    async def _rewind(self) -> None:
        revision = self.cursor.revision
        if revision.start() == -1:
            raise SubscriptionFenced(f"the position of subscription {self.name} is being set")
        self._clear()
        revision.end(CursorState.rewind)
        if self._dispatcher is not None:
            self._dispatcher.resume()

    async def _skip(self, count: int) -> None:
        upto: Position | None = None
        parts: list[EntryPart] = []
        async for entry, records, size in self._unacknowledged_entries():
            if records.bit_count() > count:
                parts = [EntryPart(entry.position, indexes_of(records)[:count], size)]
                break
            upto, count = entry.position, count - records.bit_count()
            if not count:
                break

        def edit(state: CursorState) -> None:
            state.acknowledge(parts, upto=upto)
            state.rewind()

        await self._revise(edit)

    def _unacknowledged_entries(self) -> AsyncIterator[UnacknowledgedEntry]:
        return unacknowledged_entries(
            self.cursor, self._context.ledger, self._context.visibility_filter
        )

    def _clear(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.clear()


def check_start(start: StartPosition) -> None:
    """Raise InvalidRequest when a place is not within its batch."""
    if not 0 <= start.batch_index <= max(start.batch_size, 0):
        raise InvalidRequest(
            f"record {start.batch_index} of a batch of {start.batch_size} at {start.position}"
        )
