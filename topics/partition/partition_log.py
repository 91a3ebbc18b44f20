"""Partition log: one partition as a log of record batches with offsets. A shell.

Rule: PartitionState decides what is appended and which offsets it gets, the managed ledger stores
it, TailState and OffsetIndex find it again. No await between deciding and appending. An append is
visible when the ledger has confirmed it; its caller is called back first, then the listeners. A
read returns whole stored batches, none of them copied and none at or above its limit: what memory
has without waiting, the rest from where a read hint or the offset index points to, and the headers
of what was read decide. What a compaction has rewritten is read from `CompactedLog`.
Must not know: requests, sessions, groups.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TypeVar
from uuid import UUID

from kledger.batches.buffers import Buffer
from kledger.batches.builder import build_control_batch
from kledger.batches.errors import BatchError
from kledger.batches.header import LENGTH_FIELD_END, patch_base_offset, read_header
from kledger.ledger import (
    CompactedLedgerReplaced,
    Entry,
    LedgerError,
    LedgerState,
    ManagedLedger,
    Position,
)
from kledger.runtime.clock import Clock
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.containment import Containment, FaultUnit, NamedUnit
from kledger.runtime.listeners import Listener, Listeners
from kledger.topics.compaction.compaction_rules import CompactionCounts
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.errors import (
    OffsetOutOfRange,
    TopicsError,
    TopicStorageFailed,
    UnknownPartition,
    from_batch_error,
)
from kledger.topics.partition.admission_plan import admit
from kledger.topics.partition.compacted_log import READ_ENTRIES_MAX
from kledger.topics.partition.idle_state import IdleState
from kledger.topics.partition.log_trimmer import LogTrimmer
from kledger.topics.partition.offset_lookup import OffsetLookup, TimestampedOffset, newer
from kledger.topics.partition.partition_checkpointer import PartitionCheckpointer, ledger_config
from kledger.topics.partition.partition_compaction import CompactionLimits, PartitionCompaction
from kledger.topics.partition.partition_offload import PartitionOffload
from kledger.topics.partition.partition_state import PartitionState, TailState
from kledger.topics.partition.producer_state import BatchRange, ProducerEntry
from kledger.topics.partition.read_hints import ReadHints
from kledger.topics.partition.record_walk import WalkNeeded, WalkResult, walk_inline
from kledger.topics.partition.results import (
    NO_OFFSET,
    AppendDone,
    AppendResult,
    LogLocation,
    ReadResult,
    failed_read,
    from_ledger_error,
    rejected,
    translated_errors,
)
from kledger.topics.partition.transaction_state import AbortedTransaction, TransactionEnd

BYTES_UNKNOWN = 1 << 40
_new_tuple = tuple.__new__  # a third of the cost of a class's own constructor
T = TypeVar("T")


class PartitionLog:
    """A partition that is open; made by `partition_loader.open_partition`."""

    unit_kind = "partition"

    def __init__(
        self,
        *,
        topic: str,
        topic_id: UUID,
        index: int,
        ledger: ManagedLedger,
        state: PartitionState,
        tail: TailState,
        checkpointer: PartitionCheckpointer,
        trimmer: LogTrimmer,
        lookup: OffsetLookup,
        compaction: PartitionCompaction,
        offload: PartitionOffload,
        config: TopicConfig,
        clock: Clock,
        containment: Containment,
        compute_pool: ComputePool,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.epochs = state.epochs
        self.leader_epoch = state.epochs.latest
        self.config = config
        self._ledger = ledger
        self._state = state
        self._tail = tail
        self._checkpointer = checkpointer
        self._trimmer = trimmer
        self._lookup = lookup
        self.compaction = compaction
        self.offload = offload
        self._compacted = compaction.compacted
        self._compacted_end = 0
        """Reads of offsets below it are reads of `_compacted`."""
        self._clock = clock
        self.compute_pool = compute_pool
        self._hints = ReadHints()
        self._pending = PendingAppends(self, state, tail, checkpointer, containment)
        self._listeners = Listeners(containment)
        self.on_fault: Callable[[PartitionLog], None] = lambda _: None
        """Called when a fault has closed the partition; the topic opens it again."""
        self.idle = IdleState()
        self._closed_why = ""
        """Empty while the partition is open, then the text of the error that every call gets."""
        ledger.add_listener(self._ledger_changed, self)
        self._update_compacted_end()

    # Properties

    @property
    def unit_name(self) -> str:
        """See `runtime.containment.FaultUnit`."""
        return f"{self.topic}-{self.index}"

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._state.log_start_offset

    @property
    def deleted_before_offset(self) -> int:
        """The offset before which DeleteRecords has removed the records, compacted ones too."""
        return self._state.deleted_before_offset

    @property
    def high_watermark(self) -> int:
        """The offset after the last durable record."""
        return self._state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which every transaction has ended."""
        return self._state.last_stable_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of the durable batches, also before the log start in a ledger that is kept."""
        compacted = self._ledger.compacted
        return self._ledger.total_size + (0 if compacted is None else compacted.size)

    @property
    def is_closed(self) -> bool:
        """Whether the partition was closed or deleted."""
        return bool(self._closed_why)

    @property
    def is_terminated(self) -> bool:
        """Whether it refuses records for good."""
        return self._ledger.state is LedgerState.TERMINATED

    @property
    def managed_ledger(self) -> ManagedLedger:
        """What stores the batches, and has the cursors of subscriptions."""
        return self._ledger

    @property
    def is_awaited(self) -> bool:
        """Whether an append, a listener or an open transaction keeps the partition open."""
        is_awaited = bool(self._pending.waiting) or self._listeners.has_others(self)
        is_awaited = is_awaited or self._ledger.is_compacting or self.offload.is_running
        return is_awaited or self.idle.is_held or any(self._state.transactions.open())

    def producers(self) -> dict[int, ProducerEntry]:
        """The idempotent producers remembered, by producer id."""
        return self._state.confirmed_producers()

    @property
    def coordinator_epochs(self) -> Mapping[int, int]:
        """See `ProducerTable.coordinator_epochs`."""
        return self._state.producers.coordinator_epochs

    @property
    def may_have_evicted_producers(self) -> bool:
        """Whether `producers` may lack a producer that has not expired."""
        return self._state.producers.may_have_evicted

    def has_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction in this partition."""
        return self._state.has_transaction(producer_id, epoch)

    def last_of_producer(self, producer_id: int) -> object:
        """What a producer did last in this partition: another object after each batch or marker."""
        return self._state.producers.get(producer_id)

    def has_aborted_after(self, offset: int) -> bool:
        """Whether an aborted transaction ended at an offset or later; most partitions have none."""
        return self._state.transactions.aborted.next_free > offset

    def aborted_transactions(self, offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted transactions with records in a range.

        Records of the others, and their markers, are not in the compacted log: a reader that
        got them would wait for the marker, and drop later records of the producer.
        """
        start = max(offset, self._compacted_end)
        return self._state.transactions.aborted.overlapping(start, end_offset)

    def aborted_between(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in a range, in the order of their markers."""
        return self._state.transactions.aborted.between(offset, end_offset)

    def add_listener(self, listener: Listener, unit: FaultUnit | None = None) -> None:
        """Call back when an end of the log moves or it closes; a listener's fault closes `unit`."""
        self._listeners.add(listener, unit)

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling back; an unknown listener is ignored."""
        self._listeners.remove(listener)

    def notify(self) -> None:
        """Call the listeners; each reads for itself what has changed."""
        self._listeners.notify()

    def _ledger_changed(self) -> None:
        if self._ledger.has_failed:
            self.close_after_fault()
        if self.compaction.take_over():
            self._compacted = self.compaction.compacted
            self._update_compacted_end()
        self.notify()

    # Appending

    def append_nowait(
        self,
        batch: memoryview,
        done: AppendDone,
        *,
        is_verified: bool = False,
        walked: WalkResult | None = None,
    ) -> AppendResult | None:
        """Append one produced batch. The hot path.

        Args:
            batch: the records field; writable, patched and kept: the caller must not change it.
            done: called on the event loop, in the order of appends, if None is returned.
            is_verified: its transaction is known to include this partition; if not, it must be
                open in this partition.
            walked: the result of the walk that an earlier call required.

        Returns:
            The result of a batch that is rejected or already durable; None if `done` gets it.

        Raises:
            WalkNeeded: a long walk over its records must come first; nothing has changed.
        """
        state = self._state
        if self._closed_why:
            return self._rejection(UnknownPartition(self._closed_why))
        try:
            now_ms = self._clock.now_ms()
            config = self.config
            header = admit(batch, config, now_ms, walked)
            duplicate = state.admit(header, now_ms, is_verified=is_verified)
        except BatchError as error:
            return self._rejection(from_batch_error(error))
        except TopicsError as error:
            return self._rejection(error)
        except WalkNeeded as needed:
            walked = walk_inline(needed, self.compute_pool.fits_in_tick)
            return self.append_nowait(batch, done, is_verified=is_verified, walked=walked)
        if duplicate is not None:
            return self._pending.answer_duplicate(duplicate, done)
        size = header.batch_length + LENGTH_FIELD_END
        if size != len(batch):
            batch = batch[:size]
        time_ms = now_ms if config.is_log_append_time else -1
        base_offset = state.begin(header, time_ms, now_ms)
        patch_base_offset(batch, base_offset, self.leader_epoch, batch_length=header.batch_length)
        return self._submit(batch, header.record_count, header.max_timestamp, time_ms, done)

    def append_marker_nowait(self, end: TransactionEnd, done: AppendDone) -> AppendResult | None:
        """Append the marker that ends a producer's transaction, open in this partition or not.

        Args:
            end: what the coordinator has decided.
            done: as for `append_nowait`, like the result.
        """
        state = self._state
        if self._closed_why:
            return self._rejection(UnknownPartition(self._closed_why))
        try:
            now_ms = self._clock.now_ms()
            if self._ledger.is_terminated:
                aborted = state.end_without_marker(end, now_ms)
                self._checkpointer.ended_without_marker(
                    aborted, partial(self._ended_without_marker, done)
                )
                return None
            offset = state.begin_marker(end, now_ms)
        except TopicsError as error:
            return self._rejection(error)
        batch = build_control_batch(
            is_commit=end.is_commit, producer_id=end.producer_id, producer_epoch=end.epoch,
            coordinator_epoch=end.coordinator_epoch, timestamp_ms=now_ms, base_offset=offset,
            leader_epoch=self.leader_epoch,
        )  # fmt: skip
        return self._submit(batch, 1, now_ms, -1, done)

    def _submit(
        self, batch: Buffer, record_count: int, max_timestamp: int, time_ms: int, done: AppendDone
    ) -> AppendResult | None:
        """Append the batch that was begun last to the ledger."""
        state, size, base_offset = self._state, len(batch), self._state.next_offset - record_count
        try:
            ledger_id, entry_id = self._ledger.append_nowait(
                batch, record_count, max_timestamp, self._pending.appended
            )
        except LedgerError as error:
            state.fail_from(base_offset)
            return self._rejection(from_ledger_error(error))
        except Exception:
            self.close_after_fault()  # it may be stored, and no caller waits for it
            raise
        self._tail.append(base_offset, size, max_timestamp, ledger_id, entry_id)
        self._pending.waiting.append(
            (done, base_offset, state.next_offset, time_ms, size, max_timestamp)
        )
        return None

    def _ended_without_marker(self, done: AppendDone, error: LedgerError | None) -> None:
        """Pass on whether the end of a transaction without marker is durable."""
        ended = AppendResult(None, NO_OFFSET, -1, self._state.log_start_offset)
        done(ended if error is None else self._rejection(from_ledger_error(error)))
        self.notify()

    def _rejection(self, error: TopicsError) -> AppendResult:
        return rejected(error, self._state.log_start_offset)

    # Reading

    def available_bytes(self, offset: int, upto: int) -> int:
        """Bytes of the batches from the one with `offset` up to `upto`; plain and in memory.

        Exact for the newest entries; BYTES_UNKNOWN for older offsets.
        """
        if offset >= upto:
            return 0
        if offset < self._compacted_end:
            return BYTES_UNKNOWN
        found = self._tail.bytes_between(offset, upto)
        return BYTES_UNKNOWN if found is None else found

    def read_nowait(
        self,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool = False,
        first_batch_always: bool = True,
    ) -> ReadResult | None:
        """Read whole batches from memory, or from the page cache. The hot path.

        Args:
            offset: the first record wanted; its batch comes whole.
            max_bytes: stop before more than this.
            read_committed: stop at the last stable offset instead of the high watermark.
            first_batch_always: return the first batch even when it is larger than that.

        Returns:
            None when a disk, a tier or a search is needed: `read` then returns it.
        """
        if self._closed_why:
            return failed_read(UnknownPartition(self._closed_why))
        self.idle.is_used = True
        state = self._state
        limit = state.last_stable_offset if read_committed else state.high_watermark
        if not state.log_start_offset <= offset < limit:
            return self._nothing_at(offset)
        if offset < self._compacted_end:
            return None
        tail = self._tail
        row = tail.find(offset)
        if row < 0:
            hint = self._hints.get(offset)
            if hint is None:
                return None
            return self._read_from(hint, offset, max_bytes, limit, first_batch_always)
        end_row = tail.end_row(row, limit, max_bytes)
        if end_row == row:
            if not first_batch_always:
                return self._found([], 0)
            end_row = row + 1
        count = end_row - row
        start = Position(tail.ledger_ids[row], tail.entry_ids[row])
        try:
            entries = self._ledger.read_cached(start, count)
        except LedgerError as error:
            return failed_read(from_ledger_error(error))
        if entries is None or len(entries) != count:
            return self._read_from(start, offset, max_bytes, limit, first_batch_always)
        return self._found([entry[1] for entry in entries], tail.size_of(row, end_row))

    async def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool = False,
        first_batch_always: bool = True,
    ) -> ReadResult:
        """Do what `read_nowait` does, from the storage where memory does not have it."""
        found = self.read_nowait(
            offset, max_bytes, read_committed=read_committed, first_batch_always=first_batch_always
        )
        if found is None:
            limit = self.last_stable_offset if read_committed else self._state.high_watermark
            found = await self._read_stored(offset, max_bytes, limit, first_batch_always)
            if self._closed_why:
                return failed_read(UnknownPartition(self._closed_why))
        return found

    async def _read_stored(
        self, offset: int, max_bytes: int, limit: int, first_batch_always: bool
    ) -> ReadResult:
        """Read below the offset `limit`, from memory or storage."""
        while True:
            compacted = self._compacted if offset < self._compacted_end else None
            hints, error = self._hints, None
            entries: list[Entry] = []
            try:
                if compacted is not None:
                    hints = compacted.hints
                    entries = await compacted.read(offset, max_bytes)
                else:
                    entries = await self._read_appended(offset, max_bytes)
            except CompactedLedgerReplaced:
                continue
            except LedgerError as caught:
                error = from_ledger_error(caught)
            except BatchError as caught:
                error = TopicStorageFailed(f"stored entry is no batch: {caught}")
            if compacted is None and offset < self._compacted_end:
                continue  # a compaction has completed, and the ledgers may be removed
            if error is not None:
                return failed_read(error)
            if offset < self._state.log_start_offset:  # it moved while the storage was read
                return self._nothing_at(offset)
            return self._cut(entries, offset, max_bytes, limit, first_batch_always, hints)

    async def _read_appended(self, offset: int, max_bytes: int) -> list[Entry]:
        """Read what was appended, from an offset on. Raises LedgerError, BatchError."""
        start = self._tail.position_of(offset) or self._hints.get(offset)
        if start is None:
            start = await self._lookup.find(offset)
        entries = await self._ledger.read_entries(
            Position(*start), READ_ENTRIES_MAX, bytes_max=max_bytes
        )
        if entries and read_header(entries[-1][1]).last_offset < offset:
            entries = await self._ledger.read_entries(
                entries[-1][0].successor, READ_ENTRIES_MAX, bytes_max=max_bytes
            )
        return entries

    def _read_from(
        self,
        start: Position,
        offset: int,
        max_bytes: int,
        limit: int,
        first_batch_always: bool,
    ) -> ReadResult | None:
        """Read from the entry of an offset what needs no disk; None if the first entry does."""
        try:
            entries = self._ledger.read_resident(start, READ_ENTRIES_MAX, max_bytes)
        except LedgerError as error:
            return failed_read(from_ledger_error(error))
        if not entries:
            return None
        return self._cut(entries, offset, max_bytes, limit, first_batch_always, self._hints)

    def _cut(  # noqa: PLR0917 - on the path of every read from before the tail
        self,
        entries: list[Entry],
        offset: int,
        max_bytes: int,
        limit: int,
        first_batch_always: bool,
        hints: ReadHints,
    ) -> ReadResult:
        """Keep the batches from the offset up to the limit, within the bytes; leave a hint."""
        kept = _within(entries, offset, max_bytes, limit, first_batch_always)
        if kept:
            position, buffer = kept[-1]
            hints.put(read_header(buffer).last_offset + 1, position.successor)
        elif first_batch_always:
            return failed_read(TopicStorageFailed(f"no entry holds offset {offset}"))
        chunks = [buffer for _, buffer in kept]
        return self._found(chunks, sum(map(len, chunks)))

    def _found(self, chunks: list[Buffer], size: int) -> ReadResult:
        state = self._state
        stable = state.last_stable_offset
        fields = (None, chunks, size, state.high_watermark, stable, state.log_start_offset)
        return _new_tuple(ReadResult, fields)

    def _nothing_at(self, offset: int) -> ReadResult:
        """Return no batches, or OffsetOutOfRange for an offset that the log does not have."""
        state = self._state
        if state.log_start_offset <= offset <= state.high_watermark:
            return self._found([], 0)
        return failed_read(
            OffsetOutOfRange(
                f"offset {offset}, expected {state.log_start_offset} to {state.high_watermark}"
            )
        )

    # Offsets, positions and times

    async def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record, in offset order, that is not older; None when there is none.

        Raises:
            TopicStorageFailed: the log cannot be read.
        """

        async def first() -> TimestampedOffset | None:
            start, end = self._state.log_start_offset, self._state.high_watermark
            middle = self._compacted_end
            if self._compacted is not None and start < middle:
                found = await self._compacted.lookup.first_at_time(
                    timestamp, start_offset=start, end_offset=middle
                )
                if found is not None:
                    return found
            start = max(start, middle)
            return await self._lookup.first_at_time(timestamp, start_offset=start, end_offset=end)

        return await self._read_stable(first)

    async def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The first record with the largest time; None when the log is empty.

        Raises:
            TopicStorageFailed: the log cannot be read.
        """

        async def newest() -> TimestampedOffset | None:
            start, end = self._state.log_start_offset, self._state.high_watermark
            middle, found = self._compacted_end, None
            if self._compacted is not None and start < middle:
                found = await self._compacted.lookup.newest(start_offset=start, end_offset=middle)
            start = max(start, middle)
            appended = await self._lookup.newest(start_offset=start, end_offset=end)
            return newer(found, appended)

        return await self._read_stable(newest)

    async def locate(self, offset: int) -> LogLocation:
        """Find the record at an offset, or the next one; at the end, the next entry to be written.

        Raises:
            TopicStorageFailed: the log cannot be read.
        """
        return await self._read_stable(partial(self._locate, offset))

    async def _locate(self, offset: int) -> LogLocation:
        offset = max(offset, self._state.log_start_offset)
        while offset < self._state.high_watermark:
            start = self._tail.position_of(offset) or await self._lookup.find(offset)
            entries = await self._ledger.read_entries(Position(*start), 1)
            if not entries:
                break
            position, buffer = entries[0]
            header = read_header(buffer)
            if header.last_offset >= offset:
                index = max(offset - header.base_offset, 0)
                return LogLocation(position, index, header.record_count)
            offset = header.last_offset + 1
        end = self._ledger.next_valid_position(self._ledger.last_confirmed_entry)
        return LogLocation(end, 0, 0)

    async def offset_at(self, position: Position) -> int:
        """The first offset at or after a position; two of them give the records in between.

        Raises:
            TopicStorageFailed: the log cannot be read.
        """

        async def first_offset() -> int:
            entries = await self._ledger.read_entries(position, 1)
            if not entries:
                return self._state.high_watermark
            return max(read_header(entries[0][1]).base_offset, self._state.log_start_offset)

        return await self._read_stable(first_offset)

    async def _read_stable(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read the log, and again if its start moved or it was compacted during the read."""
        self.idle.is_used = True
        while True:
            before = self._state.log_start_offset, self._compacted
            with translated_errors():
                try:
                    found = await read()
                except CompactedLedgerReplaced:
                    continue
                finally:
                    self._check_open()
            if before == (self._state.log_start_offset, self._compacted):
                return found

    # Removing

    async def delete_records(self, before_offset: int) -> int:
        """Make an offset the log start, durably; -1 stands for the high watermark.

        Returns:
            The low watermark, which is the log start.

        Raises:
            OffsetOutOfRange: it lies beyond the high watermark, or is another negative number.
            TopicStorageFailed: it could not be made durable.
        """
        self._check_open()
        high_watermark = self._state.high_watermark
        offset = high_watermark if before_offset == -1 else before_offset
        if not 0 <= offset <= high_watermark:
            raise OffsetOutOfRange(f"offset {before_offset}, expected 0 to {high_watermark}")
        with translated_errors():
            await self._trimmer.delete_before(offset, self.notify, self.locate)
            await self._trimmer.remove_old(None, self._clock.now_ms(), self.notify)
        return self._state.log_start_offset

    async def move_cursors_to_log_start(self) -> None:
        """Acknowledge for every cursor what lies before its start. Raises TopicStorageFailed."""
        with translated_errors():
            await self._trimmer.move_cursors_to_log_start(self.locate)

    async def enforce_retention(self, committed_offset: int | None = None) -> None:
        """Remove the ledgers that retention and log start release, and expire idle producers.

        Args:
            committed_offset: the lowest that a consumer group has committed, for topics that wait
                for groups; None if no group has committed.

        Raises:
            TopicStorageFailed: the storage did not take the change.
        """
        self._check_open()
        self._state.producers.expire(self._clock.now_ms())
        with translated_errors():
            await self._trimmer.remove_old(
                self.config, self._clock.now_ms(), self.notify, committed_offset=committed_offset
            )

    # Compacting

    async def compact(
        self, limits: CompactionLimits, horizon: Position | None = None
    ) -> CompactionCounts | None:
        """Rewrite the beginning of the log without what newer records replace.

        Args:
            limits: what it may use.
            horizon: the last entry that is compacted; None: all before the last stable offset.

        Returns:
            What was read and kept; None if there was nothing to compact.

        Raises:
            CompactionRunning: a compaction of the partition runs.
            TopicStorageFailed, CorruptMessage: nothing has changed.
        """
        self._check_open()
        horizon = horizon or await self.last_stable_position()
        if horizon is None:
            if self._compacted is None:
                return None
            horizon = self._compacted.compacted.horizon  # its tombstones may go now
        counts = await self.compaction.run(horizon, self.config, limits)
        with suppress(LedgerError):  # the next retention removes the rest
            await self._trimmer.remove_compacted(self.config)
        self._update_compacted_end()
        return counts

    async def last_stable_position(self) -> Position | None:
        """The last entry before the last stable offset; None if there is no such entry.

        Raises:
            TopicStorageFailed: the log cannot be read.
        """
        state = self._state
        if state.last_stable_offset == state.high_watermark:
            position = self._ledger.last_confirmed_entry
        else:
            location = await self.locate(state.last_stable_offset)
            position = self._ledger.previous_position(location.position)
        return position if position.entry_id >= 0 else None

    def _update_compacted_end(self) -> None:
        """Decide which offsets are read from the compacted log.

        Without `compact` in its policy, a topic shows what was appended for as long as it is there.
        """
        self._compacted_end = 0
        if self._compacted is not None:
            end = self._compacted.end_offset
            if not self.config.is_compacted:
                end = min(end, self._lookup.first_offset)
            self._compacted_end = end

    # Closing

    async def terminate(self) -> Position:
        """Refuse records from now on, for good; return the position of the last entry.

        Appends that began before are stored first; later ones get PartitionTerminated.

        Raises:
            TopicStorageFailed: it was not stored, and nothing has changed.
        """
        self._check_open()
        with translated_errors():
            return await self._ledger.terminate()

    def reconfigure(self, config: TopicConfig) -> None:
        """Use another configuration from now on."""
        self.config = config
        self._checkpointer.reconfigure(config)
        self._ledger.reconfigure(ledger_config(config, self.offload.policies(config)))
        self._state.producers.expiration_ms = config.producer_id_expiration_ms
        self._update_compacted_end()

    async def close(self) -> None:
        """Write a checkpoint, then close the ledger; idempotent."""
        if self._closed_why:
            return
        self.mark_closed("closed")
        with suppress(LedgerError):  # without a checkpoint the next opening only takes longer
            await self._trimmer.close()
        await self._ledger.close()
        self._pending.unlink()

    def close_after_fault(self, error: Exception | None = None) -> None:
        """Refuse everything from now on: the state in memory is in doubt, what is stored is not.

        Pending appends get an error though they may become durable, as after a lost connection;
        the retry of an idempotent producer is recognised. May be repeated.
        """
        self.mark_closed("closed after a fault")
        self._ledger.fence()
        self.on_fault(self)
        self._pending.abandon(TopicStorageFailed(f"{self.unit_name} was closed after a fault"))

    def mark_closed(self, why: str) -> None:
        """Refuse everything from now on, call the listeners and leave the ledger; plain."""
        if not self._closed_why:
            self._closed_why = f"partition {self.topic}-{self.index} is {why}"
            self.notify()
            self._ledger.remove_listener(self._ledger_changed)
            if not self._pending.waiting:
                self._pending.unlink()

    def _check_open(self) -> None:
        if self._closed_why:
            raise UnknownPartition(self._closed_why)


def _within(
    entries: list[Entry], offset: int, max_bytes: int, limit: int, first_batch_always: bool
) -> list[Entry]:
    """Return the entries of an offset and behind it, below the limit and within the bytes."""
    if (
        entries
        and sum(len(buffer) for _, buffer in entries) <= max_bytes
        and read_header(entries[0][1]).last_offset >= offset
        and read_header(entries[-1][1]).base_offset < limit
    ):
        return entries  # the usual case, without the headers in between
    kept: list[Entry] = []
    size = 0
    for entry in entries:
        header = read_header(entry[1])
        if header.last_offset < offset:
            continue
        if header.base_offset >= limit:
            break
        if size + len(entry[1]) > max_bytes and (kept or not first_batch_always):
            break
        kept.append(entry)
        size += len(entry[1])
    return kept


class PendingAppends:
    """The batches that the ledger has not confirmed yet, and their callers.

    They are confirmed, or undone, in the order in which they were appended; the caller is called
    back afterwards. A fault in between leaves the partition's state in doubt: the partition closes
    and every caller gets an error. The ledger holds this object, and through it no closed log.

    Attributes:
        waiting: per append: done, base offset, next offset, log append time, size, max timestamp;
            the partition log adds to it.
    """

    __slots__ = (
        "_checkpointer", "_containment", "_duplicates", "_failing_count", "_partition", "_state",
        "_tail", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        partition: FaultUnit,
        state: PartitionState,
        tail: TailState,
        checkpointer: PartitionCheckpointer,
        containment: Containment,
    ) -> None:
        self.waiting: deque[tuple[AppendDone, int, int, int, int, int]] = deque()
        self._partition = partition
        self._state = state
        self._tail = tail
        self._checkpointer = checkpointer
        self._containment = containment
        self._failing_count = 0
        self._duplicates: dict[int, list[AppendDone]] = {}

    def answer_duplicate(self, found: BatchRange, done: AppendDone) -> AppendResult | None:
        """Answer a batch that was sent again; None: `done` is called when the first one is."""
        if self._state.is_pending(found.base_offset):
            self._duplicates.setdefault(found.base_offset, []).append(done)
            return None
        found_position = self._tail.position_of(found.base_offset)
        position = None if found_position is None else Position(*found_position)
        start = self._state.log_start_offset
        return AppendResult(None, found.base_offset, found.log_append_time_ms, start, position)

    def appended(self, position: Position, error: LedgerError | None) -> None:
        """Confirm or undo the oldest append; the ledger calls this. The hot path."""
        if not self.waiting:
            return  # abandoned: every caller has its error
        try:
            done, base_offset, next_offset, time_ms, size, max_timestamp = self.waiting[0]
            if error is None:
                assert self._failing_count == 0, "an append was confirmed after a failed one"
                aborted = self._state.confirm()
                self._checkpointer.confirmed(
                    position, base_offset, next_offset, size, max_timestamp
                )
                if aborted is not None:
                    self._checkpointer.aborted(aborted)
                start = self._state.log_start_offset
                result = _new_tuple(AppendResult, (None, base_offset, time_ms, start, position))
            else:
                self._undo(base_offset)
                result = rejected(from_ledger_error(error), self._state.log_start_offset)
            self.waiting.popleft()
        except Exception as fault:  # noqa: BLE001 - the state of the partition is in doubt
            self._containment.failed(self._partition, fault)
            return
        done(result)
        if self._duplicates:
            for each in self._duplicates.pop(base_offset, ()):
                each(result)

    def abandon(self, error: TopicsError) -> None:
        """Give every caller an error; later confirmations of the ledger are ignored."""
        waiting, duplicates = tuple(self.waiting), self._duplicates
        self.waiting.clear()
        self._duplicates = {}
        result = rejected(error, self._state.log_start_offset)
        for done in (*(each[0] for each in waiting), *chain.from_iterable(duplicates.values())):
            self._containment.run(self._partition, done, result)

    def unlink(self) -> None:
        """Drop the reference to the closed partition, so that it can be freed."""
        self._partition = NamedUnit(self._partition.unit_kind, self._partition.unit_name)

    def _undo(self, base_offset: int) -> None:
        """Undo all pending appends when the first of them fails; the others fail next."""
        if self._failing_count == 0:
            self._failing_count = self._state.fail_from(base_offset)
            self._tail.truncate(base_offset)
        self._failing_count -= 1
