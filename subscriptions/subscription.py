"""Subscription: one cursor of one partition and the consumers that share it. A shell.

Rule: the type is that of the first consumer for as long as any is connected. Setting the position
fences the subscription, disconnects all consumers, and changes the cursor and the dispatcher in one
step; an acknowledgement of a disconnected consumer has no effect and is no error. What a consumer
acknowledges is applied to the cursor and to the dispatcher in one step, and durable when the call
returns.
Must not know: which consumer gets which record, topics, connections.
Theory: docs/ARCHITECTURE.md, "Subscriptions and dispatch".
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kledger.ledger import Cursor, CursorState, EntryPart, ManagedLedger, Position
from kledger.runtime.clock import Clock
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.containment import NamedUnit
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import TimerHandle, Timers
from kledger.subscriptions.dispatch.dispatcher import Dispatcher
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.entry_view import RECORDS_MAX, indexes_of
from kledger.subscriptions.errors import (
    ConsumerBusy,
    InvalidRequest,
    SubscriptionClosed,
    SubscriptionFailed,
    SubscriptionFenced,
    SubscriptionsError,
    translating,
)
from kledger.subscriptions.model import (
    ALL,
    Acknowledgement,
    ConsumerOptions,
    Deliver,
    Delivery,
    OnReadPosition,
    PartitionSubscriptionStats,
    RecordMask,
    StartPosition,
    SubscriptionType,
)
from kledger.subscriptions.unacknowledged_entries import UnacknowledgedEntry, unacknowledged_entries
from kledger.subscriptions.visibility_filter import VisibilityFilter

CONSUMERS_MAX = 10_000
"""The most consumers that one subscription of one partition has."""
NON_DURABLE_IDLE_MS = 60_000
"""How long a non-durable subscription stays without consumers: after it was created, and after a
reset has disconnected them."""
UNACKNOWLEDGED = "pulsar_subscription_unacked_messages"
REDELIVERED = "subscription_redelivered"
PEEK_ENTRIES_MAX = 1_000
"""The most entries that one `peek` returns."""

SINGLE_ACTIVE_TYPES = {SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER}
"""The types that deliver everything to one consumer, in order."""

OnEnded: TypeAlias = Callable[[SubscriptionsError | None], None]
"""Called once when a consumer is disconnected without having closed itself; plain, on the event
loop, must not raise. None: it may join again at once, as after a reset; SubscriptionClosed: not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionContext:
    """What a subscription knows of its partition.

    Attributes:
        ledger: the partition's entries.
        visibility_filter: decides which of them may be delivered.
        partition_index: spreads the active consumers of a topic over its partitions.
        forget: called with a subscription that is closed or deleted.
        compute_pool: runs what takes too long for the event loop.
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
        """Whether its position is being set: no consumer can join."""
        self.is_closed = False
        self.ledger = context.ledger
        self._context = context
        self._consumers_max = consumers_max
        self._consumers: dict[SubscriptionConsumer, None] = {}  # in the order in which they joined
        self._dispatcher: Dispatcher | None = None
        self._type: SubscriptionType | None = None
        self._options: DispatchOptions | None = None
        self._redelivered_before = 0
        self._lock = asyncio.Lock()
        self._idle_timer: TimerHandle | None = None
        show = self.ledger.show_user_metric
        show(
            cursor,
            UNACKNOWLEDGED,
            lambda: self.unacknowledged,
            "records that are unacknowledged",
        )
        show(cursor, REDELIVERED, lambda: self.redelivered, "records delivered again")
        self._start_idle_timer()

    # Numbers

    @property
    def type(self) -> SubscriptionType | None:
        """How it dispatches; None while no consumer is connected."""
        return self._type if self._consumers else None

    @property
    def unit_name(self) -> str:
        """See `runtime.containment.FaultUnit`."""
        return f"{self.name} of {self.ledger.name}"

    @property
    def is_durable(self) -> bool:
        """Whether it stays when its last consumer has left."""
        return self.cursor.is_durable

    @property
    def consumer_count(self) -> int:
        """How many consumers are connected."""
        return len(self._consumers)

    @property
    def unacknowledged(self) -> int:
        """How many records are delivered and not acknowledged, as `Dispatcher` counts them."""
        return 0 if self._dispatcher is None else self._dispatcher.unacknowledged

    @property
    def redelivered(self) -> int:
        """How many records were delivered again."""
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
        """Return the next unacknowledged entries, and which of their records; nothing changes.

        Raises:
            InvalidRequest: the count is not within 1 to `PEEK_ENTRIES_MAX`.
            StorageFailed, SubscriptionClosed: they cannot be read.
        """
        if not 0 < count <= PEEK_ENTRIES_MAX:
            raise InvalidRequest(f"count: expected 1 to {PEEK_ENTRIES_MAX}, got {count}")
        self._check_open()
        found: list[Delivery] = []
        with translating():
            async for (position, buffer), records, _ in self._unacknowledged_entries():
                if records:
                    found.append(Delivery(position, buffer, records, 0))
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
        on_read_position: OnReadPosition | None = None,
        reads_compacted: bool = False,
        is_continued: bool = False,
        unacked_subscription_max: int = 200_000,
        failover_delay_ms: int = 1_000,
    ) -> "SubscriptionConsumer":
        """Join as one of the `wanted` type; nothing is delivered before there are permits.

        Args:
            options: of this consumer alone.
            wanted: the type; that of the connected consumers, if there are any.
            deliver: called with what it gets.
            on_ended: called when it is disconnected.
            on_read_position: of an exclusive consumer: called when its read position has moved.
            reads_compacted: whether it gets what a compaction has kept, up to its horizon, instead
                of the log; the same for all consumers.
            is_continued: whether it has got what lies before the position of the subscription, so
                that it needs to know which keys were removed since.
            unacked_subscription_max: records, of all consumers together; the first consumer's
                value holds.
            failover_delay_ms: likewise.

        Raises:
            ConsumerBusy, ConsumerAssign: other consumers exclude it.
            InvalidRequest: an option has an invalid value.
            SubscriptionFenced: the position is being set; joining again soon will work.
            SubscriptionClosed: the subscription is closed.
        """
        if on_read_position is not None and wanted is not SubscriptionType.EXCLUSIVE:
            raise InvalidRequest(f"read positions: expected an exclusive consumer, got {wanted}")
        if reads_compacted and wanted not in SINGLE_ACTIVE_TYPES:
            raise InvalidRequest(
                f"read compacted: expected an exclusive or failover consumer, got {wanted}"
            )
        dispatch_options = DispatchOptions(
            unacked_subscription_max=unacked_subscription_max,
            failover_delay_ms=failover_delay_ms,
            partition_index=self._context.partition_index,
        )
        self._check_admits(wanted, reads_compacted=reads_compacted)
        async with self._lock:
            self._check_admits(wanted, reads_compacted=reads_compacted)
            dispatcher = await self._dispatcher_for(
                wanted,
                dispatch_options,
                reads_compacted=reads_compacted,
                is_continued=is_continued,
            )
            # It may have been fenced or closed while another dispatcher was being closed.
            self._check_admits(wanted, reads_compacted=reads_compacted)
            number = dispatcher.add_consumer(options, deliver, on_read_position)
            consumer = SubscriptionConsumer(
                options.name,
                number,
                self,
                dispatcher,
                allows_upto=wanted in SINGLE_ACTIVE_TYPES,
                on_ended=on_ended,
            )
            self._consumers[consumer] = None
            self._cancel_idle_timer()
            return consumer

    def disconnect_all(self, error: SubscriptionsError | None = None) -> None:
        """Disconnect all consumers; each gets `on_ended(error)`."""
        contain = self._context.supervisor.containment.run
        for consumer in tuple(self._consumers):
            del self._consumers[consumer]
            contain(NamedUnit("consumer", consumer.name), consumer.end, error)
        self._start_idle_timer()

    # Setting the position

    async def reset(self, start: StartPosition) -> None:
        """Make everything from a position on unacknowledged, and acknowledge all before it.

        All consumers are disconnected with `on_ended(None)`. The change is applied once it is
        durable.

        Raises:
            SubscriptionFenced: the position is being set already.
            InvalidRequest: the record index is not within its batch.
            StorageFailed: nothing was changed.
            SubscriptionClosed: the subscription is closed.
        """
        check_start(start)
        position, index, size = start

        def edit(state: CursorState) -> None:
            state.reset_to(position, acknowledged=range(index), batch_size=size)

        await self._set_position(lambda: self._revise(edit))

    async def skip(self, count: int) -> None:
        """Acknowledge the next `count` unacknowledged records; otherwise as `reset`."""
        if count <= 0:
            raise InvalidRequest(f"count: expected a positive number, got {count}")
        await self._set_position(lambda: self._skip(count))

    async def clear_backlog(self) -> None:
        """Acknowledge everything up to the last entry; otherwise as `reset`."""

        def edit(state: CursorState) -> None:
            state.acknowledge([], upto=state.last_confirmed)
            state.rewind()

        await self._set_position(lambda: self._revise(edit))

    async def rewind(self) -> None:
        """Redeliver everything that is not acknowledged; otherwise as `reset`."""
        await self._set_position(self._rewind)

    # Closing

    def end(self, how: str = "closed") -> None:
        """Refuse every further call, and disconnect all consumers with SubscriptionClosed."""
        if not self.is_closed:
            self._end(SubscriptionClosed(f"subscription {self.name} was {how}"))

    def close_after_fault(self, error: Exception) -> None:
        """Close at once with SubscriptionFailed: consumers may join again, which opens it anew."""
        if self.is_closed:
            return
        if self._dispatcher is not None:
            self._dispatcher.stop()  # its state is in doubt, and not used any more
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
        """Disconnect all consumers with SubscriptionClosed and close the cursor. May be repeated.

        Raises:
            ConsumerBusy: there are consumers, and no `force`.
            StorageFailed: the last acknowledgements are not durable.
        """
        self._check_can_end(force=force)
        self.end("closed")
        if self._context.supervisor.is_closed:
            await self._close()
        else:
            # Cancelled halfway, it would stay for ever unless a caller closed it again.
            await self._context.supervisor.finish(self._close(), f"close {self.name}")

    async def delete(self, *, force: bool = False) -> None:
        """Delete the cursor; otherwise as `close`.

        Raises:
            ConsumerBusy: there are consumers, and no `force`.
            StorageFailed: it is as before, without consumers.
            SubscriptionClosed: it is closed already.
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
                    await self.ledger.delete_cursor(self.name)
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

    # Consumers, inside

    def _check_open(self) -> None:
        if self.is_closed or self._context.supervisor.is_closed:
            raise SubscriptionClosed(f"subscription {self.name} is closed")

    def _check_not_fenced(self) -> None:
        self._check_open()
        if self.is_fenced:
            raise SubscriptionFenced(f"the position of subscription {self.name} is being set")

    def _check_admits(self, wanted: SubscriptionType, *, reads_compacted: bool) -> None:
        self._check_not_fenced()
        if self._consumers and wanted is not self._type:
            raise ConsumerBusy(
                f"subscription {self.name} is {self._type}, a consumer wants {wanted}"
            )
        if self._consumers and reads_compacted is not self.cursor.reads_compacted:
            wish = {True: "reads compacted", False: "reads the log"}
            raise ConsumerBusy(
                f"subscription {self.name} {wish[not reads_compacted]}, "
                f"a consumer wants one that {wish[reads_compacted]}"
            )
        if len(self._consumers) >= self._consumers_max:
            raise ConsumerBusy(f"subscription {self.name} has {self._consumers_max} consumers")

    async def _dispatcher_for(
        self,
        wanted: SubscriptionType,
        options: DispatchOptions,
        *,
        reads_compacted: bool,
        is_continued: bool,
    ) -> Dispatcher:
        """Return the dispatcher of a type; another one is closed, which has no consumers now."""
        known, is_read_so = self._dispatcher, reads_compacted is self.cursor.reads_compacted
        has_options = is_read_so and options == self._options
        is_wanted = wanted is self._type and (self._consumers or has_options)
        if known is not None and is_wanted and not known.is_closed:
            return known
        await self._close_dispatcher()
        self._type, self._options = wanted, options
        with translating():
            self.cursor.set_reads_compacted(is_wanted=reads_compacted)
        # A durable one that has acknowledged something continues, whichever consumer that was.
        is_begun = self.is_durable and self.cursor.mark_delete_position.entry_id >= 0
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
            is_continued=is_continued or is_begun,
            unit=self,
        )
        return self._dispatcher

    async def _close_dispatcher(self) -> None:
        if self._dispatcher is not None:
            await self._dispatcher.close()
            self._redelivered_before += self._dispatcher.redelivered
            self._dispatcher = None

    async def _on_consumer_left(self, consumer: "SubscriptionConsumer") -> None:
        """Remove a consumer that has closed itself; the last one closes a non-durable one."""
        self._consumers.pop(consumer, None)
        if not (self._consumers or self.is_durable or self.is_fenced or self.is_closed):
            await self.close()

    def _check_can_end(self, *, force: bool) -> None:
        if self._consumers and not force:
            raise ConsumerBusy(f"subscription {self.name} has {len(self._consumers)} consumers")

    # A non-durable subscription without consumers is closed after a while

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
            return  # a durable cursor writes its acknowledgements when it is opened or closed again

    # Setting the position, inside

    async def _set_position(self, work: Callable[[], Awaitable[None]]) -> None:
        """Fence, disconnect all consumers, run `work` to its end, and let consumers join again."""
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
        context = self._context
        return unacknowledged_entries(self.cursor, context.visibility_filter, context.compute_pool)

    def _clear(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.clear()


class SubscriptionConsumer:
    """A consumer of a subscription; made by `Subscription.add_consumer`.

    It ends at once when it is closed or disconnected; every later call returns without effect.
    """

    def __init__(
        self,
        name: str,
        number: int,
        subscription: Subscription,
        dispatcher: Dispatcher,
        *,
        allows_upto: bool,
        on_ended: OnEnded,
    ) -> None:
        """Make one that the dispatcher has accepted.

        Args:
            name: the consumer's own name.
            number: the dispatcher's name for it.
            subscription: which it has joined.
            dispatcher: that of the subscription, for as long as it has consumers.
            allows_upto: whether all before an entry can be acknowledged.
            on_ended: called when it is disconnected.
        """
        self.name = name
        self.is_ended = False
        """Whether it was closed or disconnected."""
        self._number = number
        self._subscription = subscription
        self._cursor = subscription.cursor
        self._dispatcher = dispatcher
        self._allows_upto = allows_upto
        self._on_ended = on_ended

    def add_permits(self, count: int) -> None:
        """Allow `count` more records to be delivered. Raises InvalidRequest."""
        if not self.is_ended:
            self._dispatcher.add_permits(self._number, count)

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Acknowledge records, all or none; return when that is as durable as an append.

        Raises:
            InvalidRequest: one names a record that cannot have been delivered.
            StorageFailed: they are acknowledged, but that is not durable yet.
            SubscriptionClosed: the subscription is closed.
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
        """Acknowledge all before an entry, and these records of it; otherwise as `acknowledge`.

        Raises:
            InvalidRequest: also when the type delivers records to several consumers.
        """
        if self.is_ended:
            return
        if not self._allows_upto:
            raise InvalidRequest("all before a message cannot be acknowledged where others share")
        part = entry_part(acknowledgement)
        before = self._subscription.ledger.previous_position(acknowledgement.position)
        with translating():
            self._cursor.acknowledge_nowait([part], upto=before)
            self._dispatcher.acknowledged_upto(*record_mask(acknowledgement, part))
            await self._cursor.wait_durable()

    def redeliver(self, masks: Sequence[RecordMask] | None) -> None:
        """Have records redelivered: these, or (None) all that it has not acknowledged."""
        if not self.is_ended:
            self._dispatcher.redeliver(self._number, masks)

    async def close(self) -> None:
        """Leave; other consumers get what it has not acknowledged. May be repeated."""
        if not self.is_ended:
            self._disconnect()
            await self._subscription._on_consumer_left(self)

    def end(self, error: SubscriptionsError | None) -> None:
        """Disconnect it; called by the subscription only."""
        on_ended = self._on_ended
        self._disconnect()
        on_ended(error)

    def _disconnect(self) -> None:
        self.is_ended = True
        self._on_ended = _ignore_end
        self._dispatcher.remove_consumer(self._number)


def _ignore_end(_error: SubscriptionsError | None) -> None:
    """It has ended already."""


def check_start(start: StartPosition) -> None:
    """Raise InvalidRequest when a record index is not within its batch."""
    if not 0 <= start.batch_index <= max(start.batch_size, 0):
        raise InvalidRequest(
            f"record {start.batch_index} of a batch of {start.batch_size} at {start.position}"
        )


def entry_part(acknowledgement: Acknowledgement) -> EntryPart:
    """Return what the cursor acknowledges; all records of an entry are the entry.

    Raises:
        InvalidRequest: the records are not within their batch.
    """
    position, records, batch_size = acknowledgement
    if records == ALL:
        return EntryPart(position, None)
    if not 0 < batch_size <= RECORDS_MAX or not 0 <= records < 1 << batch_size:
        raise InvalidRequest(f"{position}: records beyond a batch of {batch_size}")
    if records == (1 << batch_size) - 1:
        return EntryPart(position, None)
    return EntryPart(position, indexes_of(records), batch_size)


def record_mask(acknowledgement: Acknowledgement, part: EntryPart) -> RecordMask:
    """Return what the dispatcher is to forget of an acknowledgement."""
    return RecordMask(part.position, ALL if part.indexes is None else acknowledgement.records)
