"""Dispatcher: reads one cursor and delivers to the consumers of one subscription type. A shell.

Rule: the state of the type decides which consumer gets which records. Entries that were read under
one revision of the cursor are never delivered under another: that is checked when a read is
complete and again right before `deliver`. New entries pass through `DispatchBuffer`, which asks the
visibility filter; entries to redeliver are read first, and were visible when they were new.
Must not know: how acknowledgements become durable, connections, topics.
Theory: docs/ARCHITECTURE.md, "Subscriptions and dispatch".
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

from kledger.batches.pacing import Pause
from kledger.ledger import (
    AlreadyClosed,
    Buffer,
    Cursor,
    CursorState,
    Entry,
    EntryPart,
    Fenced,
    LedgerError,
    NoMoreEntries,
    Position,
    ResetInProgress,
)
from kledger.runtime.blocking import Arguments, PoolClosed, Result
from kledger.runtime.clock import Clock
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.compute_process import ComputeProcessDied
from kledger.runtime.containment import FaultUnit
from kledger.runtime.logs import RateLimitedLog
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import TimerHandle, Timers
from kledger.subscriptions.dispatch.dispatch_state import (
    DeliveriesByConsumer,
    DispatchState,
    ReplayingState,
    RewindCursor,
)
from kledger.subscriptions.dispatch.kept_records import KeptRecords
from kledger.subscriptions.dispatch.key_shared_state import KeySharedState
from kledger.subscriptions.dispatch.multiple_consumers_state import MultipleConsumersState
from kledger.subscriptions.dispatch.shared_state import SharedState
from kledger.subscriptions.dispatch.single_active_state import SingleActiveState
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.entry_view import (
    all_records_of,
    deliver_at_cost,
    deliver_at_ms,
    index_count,
    kept_records,
    key_scan_cost,
    keyless_hash_of,
    mask_of,
    record_count,
    records_by_key_hash,
)
from kledger.subscriptions.errors import SubscriptionClosed, SubscriptionFenced
from kledger.subscriptions.model import (
    ConsumerOptions,
    Deliver,
    OnReadPosition,
    RecordMask,
    SubscriptionType,
)
from kledger.subscriptions.visibility_filter import ALL_VISIBLE, VisibilityFilter

logger = logging.getLogger(__name__)

WARNINGS_PER_SECOND = 1
RETRY_MIN_MS = 20
RETRY_MAX_MS = 5_000


def state_for(subscription_type: SubscriptionType, options: DispatchOptions) -> DispatchState:
    """Return a new state of a type."""
    match subscription_type:
        case SubscriptionType.EXCLUSIVE:
            return SingleActiveState(options, is_exclusive=True)
        case SubscriptionType.FAILOVER:
            return SingleActiveState(options, is_exclusive=False)
        case SubscriptionType.SHARED:
            return SharedState(options)
        case SubscriptionType.KEY_SHARED:
            return KeySharedState(options)


class Dispatcher:
    """One per subscription and type; without consumers it reads nothing.

    It is kept while no consumer is connected, because it knows the redelivery counts.
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
        visibility_filter: VisibilityFilter = ALL_VISIBLE,
        is_continued: bool = False,
        unit: FaultUnit | None = None,
        compute_pool: ComputePool | None = None,
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            cursor: read sequentially by the dispatcher alone while there are consumers.
            subscription_type: how records are dispatched.
            options: limits and delays.
            clock: for delayed records and retries.
            timers: for delayed records and failover.
            supervisor: of the tasks that read.
            visibility_filter: decides which entries may be delivered.
            is_continued: see `KeptRecords`, for a cursor that reads compacted.
            unit: closed by a fault here.
            compute_pool: scans large entries; without it they are scanned on the event loop.
        """
        self._cursor = cursor
        self._revision = cursor.revision
        self._options = options
        self._state = state_for(subscription_type, options)
        self._clock = clock
        self._timers = timers
        self._supervisor = supervisor
        self._unit = unit
        self._compute_pool = compute_pool
        self._log = RateLimitedLog(logger, WARNINGS_PER_SECOND, clock)
        self._delivers: dict[int, Deliver] = {}
        self._on_read_position: dict[int, OnReadPosition] = {}
        self._reported_position: Position | None = None  # all before it was delivered, or reported
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = Signal()
        self._buffer = DispatchBuffer(
            cursor, visibility_filter, changed=self._changed.notify, unit=unit
        )
        self._kept_records: KeptRecords | None = None
        if cursor.reads_compacted:
            self._kept_records = KeptRecords(
                cursor,
                fits_in_tick=_always if compute_pool is None else compute_pool.fits_in_tick,
                scan_long=self._scan_kept,
                is_continued=is_continued,
            )
        self._failover_timer: TimerHandle | None = None
        self._delay_timer: TimerHandle | None = None
        self._delay_timer_due_ms = 0
        self._delays_checked_ms = clock.monotonic_ms() - options.delayed_tick_ms
        self._is_closed = False

    # Numbers

    @property
    def consumer_names(self) -> tuple[str, ...]:
        """The consumers, in the order in which they joined."""
        return tuple(each.name for each in self._state.consumers.values())

    @property
    def unacknowledged(self) -> int:
        """How many records are delivered and not acknowledged.

        Exclusive and failover count no further than `UNACKED_COUNTED_MAX` entries.
        """
        return self._state.unacknowledged

    @property
    def delayed(self) -> int:
        """How many delayed records are not due yet."""
        return self._state.delayed

    @property
    def redelivered(self) -> int:
        """How many records were delivered again."""
        return self._state.redelivered

    @property
    def is_closed(self) -> bool:
        """Whether it or its cursor was closed: nothing is delivered any more."""
        return self._is_closed or self._cursor.is_closed

    def is_active(self, consumer: int) -> bool:
        """Whether a consumer may get records: of failover only the active one, else every one."""
        return self._state.is_active(consumer)

    # Consumers

    def add_consumer(
        self,
        options: ConsumerOptions,
        deliver: Deliver,
        on_read_position: OnReadPosition | None = None,
    ) -> int:
        """Add a consumer; return its number, which is never used again.

        The first consumer begins with everything that is not acknowledged: the cursor is rewound in
        a revision of its own. `deliver` is called from tasks of the dispatcher only, never from
        within another call; `on_read_position`, for an exclusive consumer only, likewise.

        Raises:
            ConsumerBusy: exclusive has one already; or some have key ranges and others have none.
            ConsumerAssign: its key ranges overlap those of another one.
            InvalidRequest: its key ranges or limits are invalid.
            SubscriptionFenced: a revision of the cursor runs.
            SubscriptionClosed: the dispatcher is closed.
        """
        if self.is_closed or self._supervisor.is_closed:
            raise SubscriptionClosed(f"subscription {self._cursor.name} is closed")
        if self._revision.is_running:
            raise SubscriptionFenced(f"the position of {self._cursor.name} is being set")
        number, rewind = self._state.add(options)
        self._delivers[number] = deliver
        if on_read_position is not None:
            self._on_read_position[number] = on_read_position
            self._reported_position = None
        if not self._tasks:
            self._tasks = [self._spawn(self._read_on())]
            if isinstance(self._state, ReplayingState):
                self._tasks.append(self._spawn(self._replay(self._state)))
        self._apply_rewind(rewind)
        self._changed.notify()
        return number

    def remove_consumer(self, consumer: int) -> None:
        """Remove a consumer; without effect when it is unknown.

        What it has not acknowledged is redelivered: to others at once (shared, key_shared), or to
        the next active consumer from the cursor. Without consumers, reading stops.
        """
        if self._delivers.pop(consumer, None) is None:
            return
        self._on_read_position.pop(consumer, None)
        self._apply_rewind(self._state.remove(consumer))
        if not self._delivers:
            self._cancel_failover()
            self._cursor.cancel_pending_read()
            self._buffer.clear()
        self._changed.notify()

    def add_permits(self, consumer: int, count: int) -> None:
        """Let a consumer get `count` more records; without effect when it is unknown.

        Raises:
            InvalidRequest: the count is not positive.
        """
        found = self._state.consumers.get(consumer)
        if found is not None:
            had_permits = found.permits > 0
            found.add_permits(count)
            if not had_permits:
                self._changed.notify()

    def redeliver(self, consumer: int, masks: Sequence[RecordMask] | None) -> None:
        """Redeliver records that a consumer has not acknowledged: these, or all (None).

        Exclusive and failover go back to everything that is not acknowledged, in order, and only
        for the active consumer. Records that the consumer does not have are ignored.
        """
        if consumer in self._delivers:
            self._apply_rewind(self._state.redeliver(consumer, masks))
            self._changed.notify()

    # Following the cursor

    def acknowledged(self, masks: Iterable[RecordMask]) -> None:
        """Forget records that the cursor has acknowledged, whichever consumer had them."""
        if self._state.acknowledged(masks):
            self._changed.notify()

    def acknowledged_upto(self, position: Position, records: int) -> None:
        """Forget all entries before a position, and these records of it: they are acknowledged."""
        if self._state.acknowledged_upto(position, records):
            self._changed.notify()

    def clear(self) -> None:
        """Forget everything but the consumers and their permits.

        Called while the cursor is revised, in the step that sets its positions. Redelivery counts
        restart at 0.
        """
        self._buffer.clear()
        self._state.clear()
        if self._kept_records is not None:
            self._kept_records.position_set()

    def resume(self) -> None:
        """Continue after a revision has ended; the caller that started one must call it."""
        if self._state.is_rewind_due and not self._is_failover_pending:
            self._rewind_cursor()
        self._changed.notify()

    async def close(self) -> None:
        """Stop reading and remove all consumers. May be repeated; the cursor stays open."""
        tasks = self.stop()
        if tasks:
            await asyncio.wait(tasks)

    def stop(self) -> list[asyncio.Task[None]]:
        """Do the same without waiting for running reads; return the tasks to wait for."""
        self._is_closed = True
        self._delivers.clear()
        self._on_read_position.clear()
        self._buffer.clear()
        self._cancel_failover()
        if self._delay_timer is not None:
            self._delay_timer.cancel()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        return tasks

    # Going back

    @property
    def _is_failover_pending(self) -> bool:
        return self._failover_timer is not None and self._failover_timer.is_pending

    def _cancel_failover(self) -> None:
        if self._failover_timer is not None:
            self._failover_timer.cancel()

    def _apply_rewind(self, rewind: RewindCursor | None) -> None:
        if rewind is None:
            return
        if not rewind.delay_ms:
            self._cancel_failover()
            self._rewind_cursor()
        elif not self._is_failover_pending:
            self._failover_timer = self._timers.call_after(
                rewind.delay_ms, self._rewind_cursor, self._unit
            )

    def _rewind_cursor(self) -> None:
        """Rewind the cursor in a revision, which makes all that was read outdated.

        While another revision runs, the rewind stays due in the state, and `resume` does it.
        """
        if self.is_closed or self._revision.is_running:
            return
        self._revision.start()
        self._revision.end(CursorState.rewind)
        self._reported_position = None
        self._buffer.clear()
        self._state.rewound()
        self._changed.notify()

    # Tasks

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._supervisor.spawn(work, f"dispatch {self._cursor.name}", unit=self._unit)

    # Reading new entries

    async def _read_on(self) -> None:
        """Read new entries and deliver them, while the consumers want any."""
        retry_ms = RETRY_MIN_MS
        while True:
            version = self._changed.version
            if self._buffer:
                self._buffer.refresh()
                self._dispatch_buffered()
            self._report_read_position()
            count = 0 if self._buffer or self._is_paused() else self._state.entries_wanted()
            if not count:
                await self._changed.wait_beyond(version)
                continue
            try:
                bytes_max = self._options.read_bytes_max
                entries = await self._cursor.read_or_wait(
                    count, max_bytes=bytes_max, on_waiting=self._report_read_position
                )
            except NoMoreEntries:
                await self._changed.wait_beyond(version)
            except LedgerError as error:
                if self.is_closed:
                    return
                # Fenced may pass, too: while a deletion of the log is tried and fails.
                retry_ms = await self._back_off(error, retry_ms)
            else:
                # The read survives revisions: what it returns was read under the current one.
                revision = self._revision.number
                if self._kept_records is not None:
                    entries = await self._kept_records.without_removed(entries, revision)
                await self._scan_large_entries(entries)
                if not self._revision.is_outdated(revision):
                    self._buffer.fill(entries, revision)
                    self._dispatch_buffered()
                retry_ms = RETRY_MIN_MS
                await self._clock.sleep(0)  # a read from memory does not yield

    async def _scan_large_entries(self, entries: Sequence[Entry]) -> None:
        """Scan keys and times of entries that are too large to be scanned on the event loop."""
        state, compute_pool = self._state, self._compute_pool
        if not isinstance(state, MultipleConsumersState) or compute_pool is None:
            return
        state.scanned_delivery_times = {}
        timed = [
            each
            for each in entries
            if (cost := _delivery_time_cost(each.buffer)) and not compute_pool.fits_in_tick(cost)
        ]
        with suppress(PoolClosed):  # the server is closing
            if timed:
                times = await self._scan(
                    compute_pool, deliver_at_ms, [(each.buffer,) for each in timed], lambda _: None
                )
                positions = [each.position for each in timed]
                state.scanned_delivery_times = dict(zip(positions, times, strict=True))
            if not isinstance(state, KeySharedState):
                return
            state.scanned_key_hashes = {}
            large = [
                each
                for each in entries
                if not compute_pool.fits_in_tick(key_scan_cost(each.buffer))
            ]
            if large:
                positions = [each.position for each in large]
                jobs = [(each.buffer, keyless_hash_of(each.position)) for each in large]
                found = await self._scan(
                    compute_pool, records_by_key_hash, jobs, lambda job: all_records_of(*job)
                )
                state.scanned_key_hashes = dict(zip(positions, found, strict=True))

    async def _scan_kept(self, entries: Sequence[Entry], leaves_removals: bool) -> Sequence[int]:
        """Scan the values of entries that are too large to be scanned on the event loop."""
        assert self._compute_pool is not None, "without it everything fits"
        jobs = [(each.buffer, leaves_removals) for each in entries]
        with suppress(PoolClosed):  # the server is closing
            return await self._scan(
                self._compute_pool, kept_records, jobs, lambda job: (1 << index_count(job[0])) - 1
            )
        return [0] * len(entries)

    async def _scan(
        self,
        compute_pool: ComputePool,
        call: Callable[[Buffer, *Arguments, Pause], Result],
        jobs: Sequence[tuple[Buffer, *Arguments]],
        default: Callable[[tuple[Buffer, *Arguments]], Result],
    ) -> list[Result]:
        """Scan entries off the event loop; one that ends its process twice gets a default."""
        try:
            return await compute_pool.map(call, jobs)
        except ComputeProcessDied:
            if len(jobs) > 1:
                return [(await self._scan(compute_pool, call, [job], default))[0] for job in jobs]
        try:
            return await compute_pool.map(call, jobs)
        except ComputeProcessDied as error:
            self._log.warning("cursor %s: an entry is not scanned: %s", self._cursor.name, error)
            return [default(job) for job in jobs]

    def _is_paused(self) -> bool:
        return self._revision.is_running or self._state.is_rewind_due

    def _dispatch_buffered(self) -> None:
        """Deliver the entries that are ready, up to the limits of the consumers."""
        ready, revision = self._buffer.ready, self._buffer.revision
        if self._revision.is_outdated(revision):
            self._rewind_cursor()
        elif ready:
            out, taken = self._state.dispatch(ready, self._remaining(ready), self._clock.now_ms())
            self._buffer.ready = ready[taken:]
            if taken:  # else nothing has changed, and `_deliver` would wake this task again at once
                self._deliver(out, revision)

    # Reading again what is redelivered

    async def _replay(self, state: ReplayingState) -> None:
        """Read entries again and redeliver them."""
        retry_ms = RETRY_MIN_MS
        while True:
            version = self._changed.version
            positions = [] if self._is_paused() else state.positions_to_replay()
            if not positions:
                await self._changed.wait_beyond(version)
                continue
            revision = self._revision.number
            try:
                entries, gone = await self._cursor.replay(positions)
            except LedgerError as error:
                if self.is_closed:
                    return
                retry_ms = await self._back_off(error, retry_ms)
                continue
            if not self._revision.is_outdated(revision):
                self._deliver(
                    state.dispatch_replayed(entries, self._remaining(entries), gone), revision
                )
            retry_ms = RETRY_MIN_MS
            await self._clock.sleep(0)

    # Delivering

    def _remaining(self, entries: Sequence[Entry]) -> dict[Position, int]:
        """Return the unacknowledged records of entries that are acknowledged in part."""
        remaining = {}
        for entry in entries:
            indexes = self._cursor.state.batch_indexes(entry.position)
            if indexes is not None:
                remaining[entry.position] = mask_of(indexes)
        return remaining

    def _deliver(self, out: DeliveriesByConsumer, revision: int) -> None:
        for consumer, deliveries in out.items():
            deliver = self._delivers.get(consumer)
            if deliver is not None and not self._revision.is_outdated(revision):
                deliver(deliveries)
                if consumer in self._on_read_position:
                    self._reported_position = deliveries[-1].position.successor
        self._schedule_delays()
        self._changed.notify()

    def _report_read_position(self) -> None:
        """Report how far has been read, unless the last delivery or report says the same."""
        if not self._on_read_position or self._is_paused():
            return
        position = self._buffer.next_position or self._cursor.read_position
        if self._reported_position is None or position > self._reported_position:
            self._reported_position = position
            for on_read_position in self._on_read_position.values():
                on_read_position(position)

    async def _back_off(self, error: LedgerError, retry_ms: int) -> int:
        """Wait before a read is tried again; return how long to wait the next time."""
        if not isinstance(error, ResetInProgress | Fenced | AlreadyClosed):
            self._log.warning("cursor %s: a read failed: %s", self._cursor.name, error)
        await self._clock.sleep(retry_ms)
        return min(retry_ms * 2, RETRY_MAX_MS)

    # Delayed records

    def _schedule_delays(self) -> None:
        """Set the timer to the first due record, at least one tick after the last round."""
        due_ms = self._state.next_due_ms
        if due_ms is None:
            return
        if self._delay_timer is not None and self._delay_timer.is_pending:
            if due_ms >= self._delay_timer_due_ms:
                return
            self._delay_timer.cancel()
        self._delay_timer_due_ms = due_ms
        earliest_ms = self._delays_checked_ms + self._options.delayed_tick_ms
        at_ms = self._clock.monotonic_ms() + due_ms - self._clock.now_ms()
        self._delay_timer = self._timers.call_at(
            max(at_ms, earliest_ms), self._release_due, self._unit
        )

    def _release_due(self) -> None:
        before = self._state.delayed
        self._state.release_due(self._clock.now_ms())
        # The two clocks may differ by a fraction of a millisecond: too early, it is set again.
        if self._state.delayed < before:
            self._delays_checked_ms = self._clock.monotonic_ms()
        self._schedule_delays()
        self._changed.notify()


class DispatchBuffer:
    """New entries of one read that are not dispatched yet.

    An entry is ready when the visibility filter has settled that it is visible; the first unsettled
    entry holds up all behind it. Hidden entries are acknowledged here, because no consumer gets
    them.

    Attributes:
        ready: to be dispatched, in order; the dispatcher removes what it has dispatched.
        revision: the number of the cursor's revision under which all was read.
    """

    __slots__ = (
        "_changed",
        "_cursor",
        "_unit",
        "_unsettled",
        "_visibility_filter",
        "ready",
        "revision",
    )

    def __init__(
        self,
        cursor: Cursor,
        visibility_filter: VisibilityFilter,
        *,
        changed: Callable[[], None],
        unit: FaultUnit | None = None,
    ) -> None:
        """Begin empty.

        Args:
            cursor: of the subscription.
            visibility_filter: of its partition.
            changed: called when `refresh` would make more entries ready.
            unit: closed by a fault of the filter's listener.
        """
        self._unit = unit
        self._cursor = cursor
        self._visibility_filter = visibility_filter
        self._changed = changed
        self._unsettled: list[Entry] = []
        self.ready: list[Entry] = []
        self.revision = 0

    def __bool__(self) -> bool:
        return bool(self.ready or self._unsettled)

    @property
    def next_position(self) -> Position | None:
        """The first entry that is not dispatched yet; None: all are."""
        waiting = self.ready or self._unsettled
        return waiting[0].position if waiting else None

    def fill(self, entries: list[Entry], revision: int) -> None:
        """Take the entries of a read under a revision; the buffer must be empty."""
        assert not self, "entries were read while others are in the buffer"
        self.revision = revision
        self._settle(entries)

    def refresh(self) -> None:
        """Remove what was acknowledged meanwhile, and ask the filter again."""
        self.ready = self._unacknowledged(self.ready)
        if self._unsettled:
            self._settle(self._unacknowledged(self._unsettled))

    def clear(self) -> None:
        """Forget everything."""
        self.ready = []
        self._keep_unsettled([])

    def _unacknowledged(self, entries: list[Entry]) -> list[Entry]:
        is_acknowledged = self._cursor.state.is_acknowledged
        return [each for each in entries if not is_acknowledged(each.position)]

    def _settle(self, entries: list[Entry]) -> None:
        settled, hidden = self._visibility_filter.visibility_of(entries)
        if settled < len(entries) or self._unsettled:
            self._keep_unsettled(entries[settled:])
            entries = entries[:settled]
        if hidden:
            self._acknowledge_hidden(hidden)
            entries = [each for each in entries if each.position not in hidden]
        self.ready += entries

    def _keep_unsettled(self, entries: list[Entry]) -> None:
        if entries:
            self._visibility_filter.add_listener(self._on_filter_changed, self._unit)
        elif self._unsettled:
            self._visibility_filter.remove_listener(self._on_filter_changed)
        self._unsettled = entries

    def _on_filter_changed(self) -> None:
        if self._visibility_filter.visibility_of(self._unsettled[:1]).settled:
            self._changed()

    def _acknowledge_hidden(self, hidden: AbstractSet[Position]) -> None:
        """Acknowledge hidden entries; durable with the next acknowledgement."""
        parts = [EntryPart(position, None) for position in hidden]
        with suppress(LedgerError):  # it is tried again when they are read again
            self._cursor.acknowledge_nowait(parts, revision=self.revision)


def _delivery_time_cost(data: Buffer) -> int:
    return deliver_at_cost(data) if record_count(data) == 1 else 0


def _always(_cost: int) -> bool:
    return True
