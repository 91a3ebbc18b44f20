"""ManagedLedger: one unbounded log made of ledgers; the handle that owns it.

Rule: this is the shell around three states: `LedgerListState` has what is confirmed,
`WriteTailState` what is submitted, `HandleState` what is allowed. Readers see confirmed entries
only. An append gets its position at once, even across a rollover, because closing a ledger and
creating the next one are rows of the same ordered stream. After a failed write the tail is rewound
to the last confirmed entry, its ledger ends there, and the next append begins a new ledger: no
position ever stands for two entries. Changes of metadata take effect when they are durable.
Must not know: what entries mean, Kafka.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from kledger.ledger.commits.committer import (
    AppendDone,
    Operation,
    RowsDone,
    ignore_outcome,
    submitted,
)
from kledger.ledger.compacted_reader import CompactedReader
from kledger.ledger.config import ManagedLedgerConfig
from kledger.ledger.cursors.cursor import Cursor
from kledger.ledger.cursors.cursor_recovery_plan import StoredCursor
from kledger.ledger.cursors.cursor_registry import CursorRegistry
from kledger.ledger.cursors.cursor_state import EntryPart
from kledger.ledger.engine.base import Buffer, Row
from kledger.ledger.entry import Entry
from kledger.ledger.entry_sources import EntrySources
from kledger.ledger.errors import CursorNotFound, Fenced, InvalidArgument, LedgerError
from kledger.ledger.handle.append_retries import AppendRetries, AppendRetry
from kledger.ledger.handle.compaction_writer import (
    COMPACTION_CURSOR,
    CompactionWriter,
    check_not_reserved,
)
from kledger.ledger.handle.compactions import Compactions
from kledger.ledger.handle.handle_state import HandleState, LedgerState
from kledger.ledger.handle.ledger_changes import LedgerChanges, MetadataChanges
from kledger.ledger.handle.metadata_submission import ChangeSubmitter, change_rows
from kledger.ledger.handle.offloads import Offloads
from kledger.ledger.handle.rollover_timer import RETRY_MS, RolloverTimer
from kledger.ledger.handle.trims import Trims
from kledger.ledger.handle.write_tail_state import TailDue, WriteTailState
from kledger.ledger.ledger_reader import LedgerReader
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.ledger_list_state import LedgerInfo, LedgerListState, MetadataChange
from kledger.ledger.metadata.records import (
    CompactedLedger,
    LedgerRecord,
    ManagedLedgerRecord,
    encode_ledger,
)
from kledger.ledger.offload.offload_policies import OffloadPolicies
from kledger.ledger.position import EARLIEST, LATEST, Position
from kledger.ledger.reads.read_counts import ReadCounts
from kledger.ledger.store_services import StoreServices
from kledger.runtime.containment import FaultUnit
from kledger.runtime.listeners import Listener, Listeners

CLOCK_SKEW_MS = 10_000
"""Between the clocks that date entries and the clock that dates closed ledgers; as in Pulsar."""

_new_tuple = tuple.__new__


class ManagedLedger:
    """A handle; made by `LedgerStore.open_managed_ledger`. Methods without await never block.

    Attributes:
        name: the name it was opened by.
        has_failed: a fault has closed the handle; its user opens a new one.
    """

    unit_kind = "partition"

    def __init__(
        self,
        name: str,
        state: LedgerListState,
        services: StoreServices,
        config: ManagedLedgerConfig,
        on_closed: Callable[["ManagedLedger"], None],
        *,
        cursors: Iterable[StoredCursor] = (),
    ) -> None:
        self._handle_state = HandleState(name)
        self.name = name
        self.has_failed = False
        self._list = state
        self._shown_as = config.shown_as or name
        check_readable = self._handle_state.check_readable
        self._sources = EntrySources(
            state, services, check_readable,
            name=self._shown_as, counts=services.read_counts.of(name),
        )  # fmt: skip
        self._reader = LedgerReader(state, services, check_readable, self._sources)
        self._listeners = Listeners(services.supervisor.containment)
        self.message_count = 0
        """Messages appended through this handle, confirmed or not; a statistic."""
        self._config = config
        self._head = state.head
        self._services = services
        self._committer = services.committer
        self._on_closed = on_closed
        self._tail = WriteTailState(config)
        self._rollover_timer = RolloverTimer(
            self._tail, timers=services.timers, clock=services.clock,
            roll=self._roll_if_needed, unit=self,
        )  # fmt: skip
        self._cursors = CursorRegistry(
            name=name, shown_as=self._shown_as, ledgers=state, reader=self._reader,
            services=services, check=self._handle_state.check_changeable,
            listen=self._listeners.listen, on_progress=self._schedule_trim,
        )  # fmt: skip
        self._append_retries = AppendRetries()
        check = self._handle_state.check_changeable
        self._compactions = Compactions(
            services, self._cursors, shown_as=self._shown_as, check=check
        )
        self._ledger_changes = LedgerChanges(
            state, check=check, supervisor=services.supervisor, shown_as=self._shown_as
        )
        self._trims = Trims(self._ledger_changes, self._cursors, services)
        self._offloads = Offloads(
            services, state, self._ledger_changes, shown_as=self._shown_as, check=check
        )
        self._configure_offload(config.offload)
        self._has_lost_appends = False
        self._set_state(self._state_when_open())
        self._cursors.recover(cursors)
        self._opened_ms = services.clock.monotonic_ms()
        if state.open_id is not None:
            self._tail.open_ledger(state.open_id, before=state.lac, now_ms=self._opened_ms)
            self._cached_ledger = services.cache.add_ledger(state.open_id)

    # Appending

    async def add_entry(
        self, data: Buffer, *, message_count: int = 1, max_timestamp_ms: int | None = None
    ) -> Position:
        """Append an entry; return when it is as durable as the store promises.

        An append that was not written is retried a few times, so the caller gets an error only from
        a storage that stays broken or has no space left.

        Raises:
            Fenced, AlreadyClosed, Terminated: the handle cannot append any more.
            StorageFailed: the entry was not stored.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidArgument(f"data: expected bytes, got {type(data).__name__}")
        if max_timestamp_ms is None:
            max_timestamp_ms = self._services.clock.now_ms()
        append_retry = AppendRetry(
            self, self._append_retries, bytes(data), message_count, max_timestamp_ms
        )
        append_retry.send()
        position = await append_retry.outcome
        self._cursors.times.record(position, max_timestamp_ms)
        return position

    def append_nowait(
        self,
        data: Buffer,
        message_count: int,
        max_timestamp_ms: int,
        done: AppendDone,
        rows: Iterable[Row] = (),
    ) -> Position:
        """Append an entry and return its position; the append may still fail, see `done`.

        Args:
            data: kept as it is, so the caller must not change it any more.
            message_count: for statistics only.
            max_timestamp_ms: the largest timestamp in the entry.
            done: called on the event loop, in the order of appends, when the entry is confirmed, or
                with the error. After StorageFailed every unconfirmed append has failed, and the
                next one begins a new ledger.
            rows: rows of the store that become durable with the entry, or not at all.

        Raises:
            Fenced, AlreadyClosed, Terminated, StorageFailed: nothing was appended.
        """
        if not self._is_ready:
            self._open_for_append()
        tail = self._tail
        committer = self._committer
        entry_id = tail.next_entry
        tail.next_entry = entry_id + 1
        added = len(data)
        tail.size = size = tail.size + added
        if max_timestamp_ms > tail.max_timestamp_ms:  # noqa: PLR1730 - max() costs twice as much
            tail.max_timestamp_ms = max_timestamp_ms
        self.message_count += message_count
        ledger_id = tail.ledger_id
        position: Position = _new_tuple(Position, (ledger_id, entry_id))
        committer.entries.append((ledger_id, entry_id, data))
        committer.operations.append((self, position, size, data, done))
        committer.size += added
        if rows:
            committer.add_rows([(keys.user_key(key), value) for key, value in rows])
        if not committer.is_commit_scheduled:
            committer.schedule_commit()
        if (
            entry_id >= tail.check_entry
            or size >= tail.check_size
            or committer.tick_ms >= tail.check_ms
        ):
            self._roll_or_mark()
        return position

    def _open_for_append(self) -> None:
        """Refuse an append, or begin a new ledger for it because earlier appends were lost."""
        self._handle_state.check_writable()
        self._submit_roll(ignore_outcome)

    def _roll_or_mark(self) -> None:
        tail = self._tail
        if tail.next_entry == 1:
            tail.active_ms = self._committer.tick_ms
            self._rollover_timer.restart()
        match tail.due(self._committer.tick_ms):
            case TailDue.ROLL:
                self._roll_if_needed()
            case TailDue.MARK:
                self._committer.add_rows([self._ledger_row(tail.record())])
            case TailDue.NOTHING:
                pass

    # Reading

    async def read_entries(
        self,
        start: Position,
        count: int,
        max_position: Position = LATEST,
        *,
        bytes_max: int | None = None,
        is_background: bool = False,
    ) -> list[Entry]:
        """Read entries in order; never waits for new entries.

        Args:
            start: position of the first entry; if it does not exist, the next one that does.
            count: how many entries at most.
            max_position: the last position that may be returned.
            bytes_max: total size at most; the first entry is returned whatever its size.
            is_background: read in a thread what is not in the entry cache, even if the page cache
                has it.

        Raises:
            Fenced: the handle is closed or fenced. Checked first.
            InvalidArgument: a position is missing, or the count is not positive.
            TooManyRequests: too many reads wait for the storage.
            NonRecoverable, Corrupt, StorageFailed: the first entry cannot be read.

        Source: PIP-480; managed ledger contract for cursorless reads.
        """
        return await self._reader.read_entries(
            start, count, bytes_max, max_position, is_background=is_background
        )

    async def read_in_chunks(
        self, start: Position, max_position: Position = LATEST, *, count: int, bytes_max: int
    ) -> AsyncIterator[list[Entry]]:
        """Yield the entries of a range, as many at a time as one `read_entries` returns.

        It ends at `max_position`, or where there is nothing more to read. Raises as `read_entries`.
        """
        async for entries in self._reader.chunks(start, max_position, count, bytes_max):
            yield entries

    def read_cached(
        self,
        start: Position,
        count: int,
        bytes_max: int | None = None,
        max_position: Position = LATEST,
    ) -> list[Entry] | None:
        """Do the same as `read_entries` if all entries are in memory, else return None."""
        return self._reader.read_cached(start, count, bytes_max, max_position)

    def read_resident(self, start: Position, count: int, bytes_max: int) -> list[Entry]:
        """Do the same with what needs no disk and no tier; see `LedgerReader.read_resident`."""
        return self._reader.read_resident(start, count, bytes_max)

    async def read_entry(self, position: Position) -> Entry:
        """Read one entry. Raises InvalidPosition when there is none, else as `read_entries`."""
        return await self._reader.read_entry(position)

    async def find_newest_matching(self, predicate: Callable[[Entry], bool]) -> Position | None:
        """Search for the newest entry that matches; all earlier ones must match, no later one may.

        Entries that are damaged, or trimmed during the search, are skipped.

        Raises:
            Fenced, StorageFailed: as for `read_entries`.
        """
        return await self._reader.search.newest_matching(predicate)

    async def find_newest_before(
        self,
        timestamp_ms: int,
        time_of: Callable[[Entry], int],
        *,
        clock_skew_ms: int | None = CLOCK_SKEW_MS,
    ) -> Position | None:
        """Search for the newest entry that is older than a time; a reset goes to the next one.

        Args:
            timestamp_ms: the time that the entry must be before.
            time_of: returns the time of an entry; times rise along the log.
            clock_skew_ms: how far these times may differ from the clock that dates closed ledgers,
                which narrows the search; None if the two are unrelated.

        Raises:
            Fenced, StorageFailed: as for `read_entries`.
        """
        return await self._reader.search.newest_before(timestamp_ms, time_of, clock_skew_ms)

    # State

    @property
    def is_terminated(self) -> bool:
        """Whether a termination is durable."""
        return self._list.is_terminated

    @property
    def state(self) -> LedgerState:
        """What the handle accepts, and whether a rollover is in flight."""
        is_rolling = self._tail.ledger_id != self._list.open_id
        if self._handle_state.state is LedgerState.LEDGER_OPENED and is_rolling:
            is_whole = self._list.lac == self._tail.before
            return LedgerState.CREATING_LEDGER if is_whole else LedgerState.CLOSING_LEDGER
        return self._handle_state.state

    @property
    def config(self) -> ManagedLedgerConfig:
        """The settings in force."""
        return self._config

    @property
    def last_confirmed_entry(self) -> Position:
        """The newest entry that readers see; stays the same when its ledger is deleted."""
        return self._list.lac

    @property
    def first_position(self) -> Position:
        """The position before the first entry: its entry id is -1."""
        return self._list.first_position

    @property
    def ledgers(self) -> tuple[LedgerInfo, ...]:
        """Every ledger, oldest first."""
        return self._list.infos()

    @property
    def total_size(self) -> int:
        """Confirmed bytes."""
        return self._list.total_size

    @property
    def properties(self) -> Mapping[str, str]:
        """The durable properties."""
        return MappingProxyType(self._list.head.properties)

    def next_valid_position(self, position: Position) -> Position:
        """Return the next position that exists, or the next to be written."""
        return self._list.next_valid(position)

    def previous_position(self, position: Position) -> Position:
        """Return the position before; entry -1 when there is none."""
        return self._list.previous(position)

    def is_valid_position(self, position: Position) -> bool:
        """Return whether the position exists or is the next to be written."""
        return self._list.is_valid(position)

    def has_entries_from(self, position: Position) -> bool:
        """Return whether the position is at or before the last confirmed entry."""
        return self._list.has_entries_from(position)

    def number_of_entries(self, start: Position, end: Position) -> int:
        """Count the entries from `start` to `end`, both included."""
        return self._list.number_of_entries(start, end)

    def estimated_backlog_bytes(self, position: Position) -> int:
        """Estimate the bytes of the entries from `position` on."""
        return self._list.estimated_backlog_bytes(position)

    # Listening

    def add_listener(self, listener: Listener, unit: FaultUnit | None = None) -> None:
        """Call back on the event loop after every change of entries, ledgers or state.

        Entries that are confirmed together cause one call; the call does not say what changed. A
        fault of the listener closes `unit`.
        """
        self._listeners.add(listener, unit)

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling back; does nothing for an unknown listener."""
        self._listeners.remove(listener)

    def listen(self, listener: Listener, unit: FaultUnit | None = None) -> Callable[[], None]:
        """Add a listener; return a function that removes it."""
        return self._listeners.listen(listener, unit)

    # Cursors

    async def open_cursor(self, name: str, *, initial: Position = LATEST) -> Cursor:
        """Open a durable cursor, or create it.

        Args:
            name: unique in this managed ledger.
            initial: where a new cursor begins: EARLIEST or LATEST; ignored if the cursor exists.

        Raises:
            InvalidArgument: the name is that of the cursor of compactions.
            Fenced, AlreadyClosed: the handle cannot be used any more.
            StorageFailed: the cursor was not created.
        """
        check_not_reserved(name)
        return await self._cursors.open(name, initial)

    async def open_cursor_at(
        self,
        name: str,
        position: Position,
        *,
        acknowledged: Collection[int] = (),
        batch_size: int = 0,
        reads_compacted: bool = False,
    ) -> Cursor:
        """Open a durable cursor, or create it where `Cursor.reset` would put it.

        A new cursor becomes durable together with its position.

        Args:
            name: unique in this managed ledger.
            position: the first entry that a new cursor reads.
            acknowledged: indexes of the records of that entry that count as acknowledged.
            batch_size: how many records that entry has.
            reads_compacted: of a new cursor; see `Cursor.set_reads_compacted`.

        Raises:
            InvalidArgument: an index is not within the batch, or the name is reserved.
            Fenced, AlreadyClosed, StorageFailed: as `open_cursor`.
        """
        check_not_reserved(name)
        start = EntryPart(position, acknowledged, batch_size)
        return await self._cursors.open_at(name, start, reads_compacted=reads_compacted)

    async def new_non_durable_cursor(self, start: Position | None = None) -> Cursor:
        """Create a cursor that lives in memory and does not hold back trimming.

        Args:
            start: its mark-delete position: reading begins at the next one. EARLIEST is before the
                first entry; LATEST, None and later positions are the last confirmed entry.
        """
        return self._cursors.make_non_durable(start)

    async def delete_cursor(self, name: str) -> None:
        """Delete a durable cursor. Raises CursorNotFound, else as `open_cursor`."""
        check_not_reserved(name)
        await self._cursors.delete(name)

    async def change_cursors(
        self, *, added: Iterable[str] = (), removed: Iterable[str] = ()
    ) -> None:
        """Create durable cursors at the first entry and delete others, without opening any.

        Names in `added` that exist, and names in `removed` that do not, are ignored. Raises as
        `open_cursor`.
        """
        for name in sorted(added):
            await self._cursors.open(name, EARLIEST)
        for name in sorted(removed):
            with suppress(CursorNotFound):
                await self._cursors.delete(name)

    def acknowledge_before(
        self, position: Position, *, records: int = 0, batch_size: int = 0, compacted: bool = False
    ) -> None:
        """Acknowledge everything before a position: the log begins there, in memory at once.

        Args:
            position: the first entry that is not acknowledged as a whole.
            records: how many of its first records are acknowledged, too.
            batch_size: how many records that entry has.
            compacted: whether for all cursors that read compacted, or for all others.
        """
        part = EntryPart(position, range(records), batch_size)
        self._cursors.acknowledge_before(part, reads_compacted=compacted)

    def show_user_metric(
        self, cursor: Cursor, metric: str, read: Callable[[], int], about: str
    ) -> None:
        """Export a metric of a cursor's user together with, and as long as, the cursor's own.

        Args:
            cursor: of this managed ledger.
            metric: name of the metric.
            read: returns the present value.
            about: what is counted, in a few words.
        """
        self._cursors.metrics.show_user_metric(cursor, metric, read, about)

    @property
    def slowest_position(self) -> Position | None:
        """Up to where every durable cursor has acknowledged, durably; None without a cursor.

        The cursor of compactions does not count, as a log may be read without them.
        """
        return self._cursors.slowest_without(COMPACTION_CURSOR)

    @property
    def has_cursors(self) -> bool:
        """Whether there is any cursor, durable or not."""
        return self._cursors.is_any

    @property
    def cursor_names(self) -> frozenset[str]:
        """The names of the durable cursors."""
        return frozenset(self.cursors)

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """The durable cursors by name, without that of compactions."""
        durable = dict(self._cursors.durable)
        durable.pop(COMPACTION_CURSOR, None)
        return MappingProxyType(durable)

    # Compaction

    @property
    def compacted(self) -> CompactedLedger | None:
        """What stands for the beginning of the log; None before the first compaction."""
        return self._list.head.compacted

    @property
    def compacted_reader(self) -> CompactedReader:
        """A new reader of it."""
        return CompactedReader(
            self._list, self._services, self._handle_state.check_readable, self._shown_as
        )

    @property
    def compaction_cursor(self) -> Cursor | None:
        """The durable cursor of compactions; None before the first one begins."""
        return self._cursors.durable.get(COMPACTION_CURSOR)

    @property
    def is_compacting(self) -> bool:
        """Whether a compaction runs."""
        return self._compactions.is_running

    async def begin_compaction(self) -> CompactionWriter:
        """Begin to write another compacted ledger; what an interrupted compaction left is dropped.

        Raises:
            CompactionRunning: one runs; it has to end first.
            Fenced, AlreadyClosed, StorageFailed: nothing was changed.
        """
        return await self._compactions.begin(self._metadata)

    # Tiered storage

    @property
    def read_counts(self) -> ReadCounts:
        """Entries read since the store was opened, by their source."""
        return replace(self._sources.counts)

    async def offload_prefix(
        self, position: Position, *, before: Position | None = None
    ) -> Position:
        """Copy the closed ledgers that lie before the ledger of a position to the tier.

        One that is trimmed meanwhile is left out. After a failure the others are still copied.

        Args:
            position: a valid one; see `is_valid_position`. LATEST: all closed ledgers.
            before: only ledgers that end before this position are copied; None is no limit.

        Returns:
            The first position of the oldest ledger without a copy.

        Raises:
            InvalidPosition: the position is not valid.
            InvalidArgument: no tier is set.
            OffloadInProgress: another offload of this managed ledger runs.
            TierUnavailable, NonRecoverable, Corrupt, StorageFailed: the first failure.
            AlreadyClosed, Fenced: the handle cannot be used any more.
        """
        return await self._offloads.copy_prefix(self._metadata, position, before)

    async def offload_due(
        self, now_ms: int | None = None, *, before: Position | None = None
    ) -> Position:
        """Do the same for the ledgers that a threshold makes due at a wall time, None = now."""
        return await self._offloads.copy_due(self._metadata, now_ms, before)

    async def delete_due_primaries(self, now_ms: int | None = None) -> tuple[int, ...]:
        """Delete primary copies whose ledgers were offloaded longer ago than the deletion lag.

        Returns:
            The ids of these ledgers; from now on they are read from the tier.

        Raises:
            AlreadyClosed, Fenced, StorageFailed: nothing was deleted.
        """
        return await self._offloads.delete_due_primaries(self._metadata, now_ms)

    async def delete_primaries(self, ledger_ids: Iterable[int]) -> tuple[int, ...]:
        """Do the same for these ledgers, whatever the lag; those without a copy are left out."""
        return await self._offloads.delete_primaries(self._metadata, frozenset(ledger_ids))

    # Changing

    def reconfigure(self, config: ManagedLedgerConfig) -> None:
        """Replace the settings; the next append, read or trim uses the new ones.

        Raises:
            InvalidArgument: the store does not know the tier; nothing has changed.
        """
        self._configure_offload(config.offload)
        self._config = config
        self._tail.configure(config)
        if self._handle_state.is_writable:
            self._rollover_timer.restart()

    async def roll_over(self) -> None:
        """Close the open ledger and begin a new one; does nothing if the open one is empty."""
        self._handle_state.check_writable()
        if self._tail.next_entry:
            await submitted(self._submit_roll)

    async def trim(self) -> None:
        """Delete the ledgers that neither retention nor a durable cursor keeps."""
        await self._trims.trim(self._metadata, self._config)

    async def truncate(self) -> None:
        """Delete all closed ledgers that lie before the slowest durable cursor."""
        await self._trims.truncate(self._metadata)

    async def trim_before(self, position: Position) -> None:
        """Delete the ledgers that lie before `position` as a whole; cursors in them move on."""
        await self._trims.trim_before(self._metadata, position)

    async def terminate(self) -> Position:
        """Accept no more entries, for good; return the last position."""
        if self._handle_state.state is LedgerState.TERMINATED:
            await self._committer.flush()
            if self._list.head.terminated_at is not None:
                return self._list.head.terminated_at
        self._handle_state.check_writable()
        end = self._tail.last_position
        await submitted(lambda done: self._submit_termination(end, done))
        return end

    async def set_property(self, key: str, value: str | None) -> None:
        """Set a durable property, or delete it with None."""
        for text in (key, value):
            if not isinstance(text, str | None):
                raise InvalidArgument(f"a property is text, got {key!r}: {value!r}")
        self._handle_state.check_changeable()
        properties = {**self._head.properties}
        if value is None:
            properties.pop(key, None)
        else:
            properties[key] = value
        change = MetadataChange(head=replace(self._head.successor(), properties=properties))
        await submitted(lambda done: self._submit_change(change, done))

    async def close(self) -> None:
        """Close the handle after all appends have been confirmed or failed. May be repeated."""
        is_being_deleted = self._handle_state.state is LedgerState.FENCED_FOR_DELETION
        if not (
            is_being_deleted
            or self._handle_state.is_writable
            or self._handle_state.state is LedgerState.TERMINATED
        ):
            await self._committer.flush()
            return
        if not is_being_deleted:
            self._cursors.close()
        self._set_state(LedgerState.CLOSED)
        if not (is_being_deleted or self._tail.is_marked or self._list.open_id is None):
            # With this row the next opening need not count entries; without it, it can.
            row = self._ledger_row(self._tail.record())
            self._committer.submit_rows([row], ignore_outcome)
        await self._committer.flush()
        await self._ledger_changes.settle()  # one that waits is refused, the handle being closed
        if self._list.open_id is not None:
            self._services.cache.close_ledger(self._list.open_id)
        self._on_closed(self)
        self.changed()

    def evict_cached(self) -> None:
        """Drop the entries in memory, for a managed ledger that is unlikely to be read soon."""
        for ledger_id in self._list.ledger_ids:
            self._services.forget_ledger(ledger_id)

    def close_after_fault(self, error: Exception) -> None:
        """Fence the handle: its memory may be wrong, and the next opening reads the storage."""
        self.has_failed = True
        if self._list.open_id is not None:
            self._services.forget_ledger(self._list.open_id)  # the cache may lack an entry
        self.fence()
        self._append_retries.send()

    # The committer's Submitter

    def confirm(self, operation: Operation) -> None:
        """Make a durable append visible to readers, and call its `done`."""
        _, position, size, data, done = operation
        try:
            self._list.advance(position, size)
            self._cached_ledger.append(data)
        except Exception as fault:  # noqa: BLE001 - any fault closes the handle, and `done` gets it
            self._services.supervisor.containment.failed(self, fault)
            done(position, Fenced(f"managed ledger {self.name} was closed after a fault"))
            return
        done(position, None)

    def group_confirmed(self) -> None:
        """Note the time of the confirmed entries, and notify the listeners once for all of them."""
        self._tail.active_ms = self._committer.tick_ms
        self.changed()

    def revert(self) -> None:
        """Rewind to what is confirmed: everything unconfirmed is lost."""
        tail, open_id = self._tail, self._list.open_id
        self._head = self._list.head
        if self._handle_state.state not in {LedgerState.FENCED, LedgerState.CLOSED}:
            self._services.versions.reset(self.name, self._head.version)
        is_ending = self._handle_state.state is LedgerState.TERMINATED and not self.is_terminated
        if self._handle_state.is_writable or is_ending:
            self._set_state(LedgerState.WRITE_FAILED)
        if open_id is None:
            return
        entries = self._list.entries_in(open_id)
        if (tail.ledger_id, tail.next_entry) != (open_id, entries):
            self._has_lost_appends, self._is_ready = True, False
        tail.rewind(
            open_id,
            entries=entries,
            size=self._list.open_size,
            lac=self._list.lac,
            opened_ms=self._opened_ms,
        )

    def fail(self, operation: Operation, error: LedgerError) -> None:
        """Call the `done` of an append that was not stored, or may not be."""
        operation[4](operation[1], error)

    def resume(self) -> None:
        """Accept appends again; those that are retried come first."""
        if self._handle_state.state is LedgerState.WRITE_FAILED:
            self._set_state(LedgerState.LEDGER_OPENED)
            self._rollover_timer.restart(delay_ms=RETRY_MS)
        self._append_retries.send()

    @property
    def unit_name(self) -> str:
        """See `runtime.containment.FaultUnit`."""
        return self.name

    def changed(self) -> None:
        """Notify the listeners; a fault of one does not stop the others."""
        self._listeners.notify()

    # For the store

    def fence(self) -> None:
        """Refuse everything from now on: another owner took over, or the store stopped."""
        if self._handle_state.state is not LedgerState.CLOSED:
            self._set_state(LedgerState.FENCED)
            self.changed()

    def fence_for_deletion(self) -> None:
        """Refuse everything while the managed ledger is deleted."""
        if self._handle_state.state not in {LedgerState.FENCED, LedgerState.CLOSED}:
            self._set_state(LedgerState.FENCED_FOR_DELETION)

    def end_deletion(self, *, deleted: bool) -> None:
        """Close the handle after a durable deletion, or reopen it after a failed one."""
        self._handle_state.is_deleted = deleted
        if deleted:
            self._cursors.end()
            self._set_state(LedgerState.CLOSED)
            self.changed()
        elif self._handle_state.state is LedgerState.FENCED_FOR_DELETION:
            self._set_state(self._state_when_open())
            if self._handle_state.is_writable:
                self._rollover_timer.restart()

    def apply(self, change: MetadataChange) -> None:
        """Let a durable change of metadata take effect."""
        cache, previous_open_id = self._services.cache, self._list.open_id
        self._cursors.acknowledge_removed(change.removed)
        self._list.apply(change)
        for ledger_id in change.removed + change.dropped:
            self._services.forget_ledger(ledger_id)
        for ledger_id in change.primaries:  # its entries in the entry cache stay
            self._services.cold_reads.drop(ledger_id)
        if change.unneeded:
            self._services.tier.forget(change.unneeded)
        open_id = self._list.open_id
        if open_id == previous_open_id:
            return
        if previous_open_id is not None:
            cache.close_ledger(previous_open_id)
        if open_id is not None:
            self._cached_ledger = cache.add_ledger(open_id)
            self._opened_ms = self._services.clock.monotonic_ms()
            self._schedule_trim()

    # Inside

    def _set_state(self, state: LedgerState) -> None:
        handle_state = self._handle_state
        handle_state.enter(state)
        self._is_ready = handle_state.is_writable and not self._has_lost_appends
        if not handle_state.is_readable:
            self._offloads.stop()
        if handle_state.is_final:
            self._rollover_timer.end()
            self._cursors.unlink()
        elif not handle_state.is_writable and state is not LedgerState.WRITE_FAILED:
            self._rollover_timer.stop()

    def _state_when_open(self) -> LedgerState:
        return LedgerState.TERMINATED if self.is_terminated else LedgerState.LEDGER_OPENED

    def _roll_if_needed(self) -> None:
        """Roll over because of size, count or age, if the handle is writable."""
        if self._handle_state.is_writable and self._tail.next_entry:
            # A version conflict has fenced this handle; the next call on it raises that.
            with suppress(Fenced):
                self._submit_roll(ignore_outcome)

    def _submit_roll(self, done: RowsDone) -> None:
        tail, services = self._tail, self._services
        opened = LedgerRecord(ledger_id=services.ids.take())
        change = self._close_tail(self._head.successor(), opened)
        self._rollover_timer.stop()
        tail.open_ledger(
            opened.ledger_id, before=tail.last_position, now_ms=services.clock.monotonic_ms()
        )
        self._has_lost_appends, self._is_ready = False, True
        self._submit_change(change, done)

    def _submit_termination(self, end: Position, done: RowsDone) -> None:
        change = self._close_tail(replace(self._head.successor(), terminated_at=end))
        self._set_state(LedgerState.TERMINATED)
        self._submit_change(change, done)

    def _close_tail(self, head: ManagedLedgerRecord, *opened: LedgerRecord) -> MetadataChange:
        """Return the change that closes the open ledger; an empty one is removed instead."""
        tail = self._tail
        if not tail.next_entry:
            return MetadataChange(head=head, put=opened, removed=(tail.ledger_id,))
        # 0 means open, and the clock of a test may return it.
        closed = tail.record(closed_ms=max(self._services.clock.now_ms(), 1))
        return MetadataChange(head=head, put=(closed, *opened))

    def _submit_change(
        self, change: MetadataChange, done: RowsDone, more_rows: Iterable[Row] = ()
    ) -> None:
        """Submit a change, unless another handle has changed the metadata: that fences this one."""
        versions = self._services.versions
        if not versions.compare_and_set(self.name, self._head.version, change.head.version):
            self.fence()
            raise Fenced(f"{self.name}: version {self._head.version} is not the newest any more")
        self._head = change.head
        rows = change_rows(self.name, change)
        rows += (self._services.ids.row(), *more_rows)
        self._committer.submit_for(ChangeSubmitter(self, change, done), rows, change.drops)

    def _ledger_row(self, record: LedgerRecord) -> Row:
        key = keys.ledger_key(self._head.managed_ledger_id, record.ledger_id)
        return key, encode_ledger(record)

    @property
    def _metadata(self) -> MetadataChanges:
        return MetadataChanges(lambda: self._head, self._submit_change)

    def _configure_offload(self, policies: OffloadPolicies) -> None:
        policies = self._services.tier.tiers.resolved(policies)
        self._offloads.policies = self._sources.policies = policies

    def _schedule_trim(self) -> None:
        self._trims.schedule(self._metadata, self._config, self)
