"""Partition log: one partition as a log of record batches with offsets. A shell.

Rule: PartitionState decides what enters and which offsets it gets, the managed ledger keeps it,
TailState and OffsetIndex say where it is. No await between deciding and appending. An append is
visible when the ledger confirmed it, its caller hears of it first, then whoever listens.
Must not know: requests, sessions, groups.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar
from uuid import UUID

from kledger.batches.buffers import Buffer
from kledger.batches.builder import build_control_batch
from kledger.batches.errors import BatchError
from kledger.batches.header import LENGTH_FIELD_END, patch_base_offset
from kledger.ledger import LedgerError, LedgerState, ManagedLedger, Position
from kledger.runtime.clock import Clock
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.containment import Containment, FaultUnit
from kledger.runtime.listeners import Listener, Listeners
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.errors import (
    OffsetOutOfRange,
    TopicsError,
    TopicStorageFailed,
    UnknownPartition,
    from_batch_error,
)
from kledger.topics.partition.admission_plan import admit
from kledger.topics.partition.idle_state import IdleState
from kledger.topics.partition.offset_lookup import OffsetLookup, TimestampedOffset
from kledger.topics.partition.partition_checkpointer import PartitionCheckpointer
from kledger.topics.partition.partition_locator import LogLocation, PartitionLocator
from kledger.topics.partition.partition_reader import PartitionReader
from kledger.topics.partition.partition_state import PartitionState
from kledger.topics.partition.pending_appends import PendingAppends
from kledger.topics.partition.producer_state import ProducerEntry
from kledger.topics.partition.record_walk import WalkNeeded, WalkResult, walk_inline
from kledger.topics.partition.results import (
    NO_OFFSET,
    AppendDone,
    AppendResult,
    ReadResult,
    failed_read,
    from_ledger_error,
    rejected,
    translated_errors,
)
from kledger.topics.partition.tail_state import TailState
from kledger.topics.partition.transaction_state import AbortedTransaction

LEADER_EPOCH = 0
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
        lookup: OffsetLookup,
        locator: PartitionLocator,
        config: TopicConfig,
        clock: Clock,
        containment: Containment,
        compute_pool: ComputePool,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = LEADER_EPOCH
        self.config = config
        self._ledger = ledger
        self._state = state
        self._tail = tail
        self._checkpointer = checkpointer
        self._clock = clock
        self.compute_pool = compute_pool
        self._reader = PartitionReader(state=state, tail=tail, ledger=ledger, lookup=lookup)
        self._locator = locator
        self._pending = PendingAppends(self, state, tail, checkpointer, containment)
        self._listeners = Listeners(containment)
        self.on_fault: Callable[[PartitionLog], None] = lambda _: None  # its topic opens it anew
        self.idle = IdleState()
        self._closed_why = ""  # else why
        ledger.add_listener(self._ledger_changed, self)

    # Looking

    @property
    def unit_name(self) -> str:
        """See `runtime.containment.FaultUnit`."""
        return f"{self.topic}-{self.index}"

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._state.log_start_offset

    @property
    def high_watermark(self) -> int:
        """The offset behind the last durable record."""
        return self._state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which every transaction has ended."""
        return self._state.last_stable_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of the durable batches, those before the log start in a kept ledger too."""
        return self._ledger.total_size

    @property
    def is_closed(self) -> bool:
        """Whether the partition was closed or deleted."""
        return bool(self._closed_why)

    @property
    def is_terminated(self) -> bool:
        """Whether it takes no records any more."""
        return self._ledger.state is LedgerState.TERMINATED

    @property
    def managed_ledger(self) -> ManagedLedger:
        """Where the batches are: for those who keep a place in it by a cursor."""
        return self._ledger

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for something to happen here, or a transaction is open."""
        is_awaited = bool(self._pending.waiting) or self._listeners.has_others(self)
        return is_awaited or self.idle.is_held or any(self._state.transactions.open())

    def producers(self) -> dict[int, ProducerEntry]:
        """The idempotent producers remembered, by producer id."""
        return self._state.confirmed_producers()

    @property
    def may_have_evicted_producers(self) -> bool:
        """Whether a producer may be missing among them that wrote lately."""
        return self._state.producers.may_have_evicted

    def has_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether that producer has a transaction open here."""
        return self._state.has_transaction(producer_id, epoch)

    def aborted_transactions(self, offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted ones with records from there up to there."""
        return self._state.transactions.aborted.overlapping(offset, end_offset)

    def aborted_between(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The same, with all that is known of them, in the order of their markers."""
        return self._state.transactions.aborted.between(offset, end_offset)

    def add_listener(self, listener: Listener, unit: FaultUnit | None = None) -> None:
        """Call back when an end of the log moved or it has gone; a fault there closes `unit`."""
        self._listeners.add(listener, unit)

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling back; nothing if it was not there."""
        self._listeners.remove(listener)

    def notify(self) -> None:
        """Tell the listeners; each looks for itself at what has changed."""
        self._listeners.notify()

    def _ledger_changed(self) -> None:
        if self._ledger.has_failed:
            self.close_after_fault()
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
            batch: the records field; writable, written to, and kept: nobody may change it later.
            done: called on the loop, in the order of appends, unless the answer comes at once.
            is_verified: its transaction is known to include this partition; else it is open here.
            walked: what the walk has found that an earlier call asked for.

        Returns:
            The answer to a batch that was rejected, or is durable already; None: `done` will tell.

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
        patch_base_offset(batch, base_offset, LEADER_EPOCH, batch_length=header.batch_length)
        return self._submit(batch, header.record_count, header.max_timestamp, time_ms, done)

    def append_marker_nowait(
        self,
        producer_id: int,
        epoch: int,
        done: AppendDone,
        *,
        is_commit: bool,
        coordinator_epoch: int,
    ) -> AppendResult | None:
        """Append the marker that ends a producer's transaction, and answer as `append_nowait`.

        A transaction may be open here or not.

        Args:
            producer_id: whose transaction.
            epoch: the producer's from now on; older ones cannot write any more.
            done: as for `append_nowait`.
            is_commit: how it ends.
            coordinator_epoch: of who decided it.
        """
        state = self._state
        if self._closed_why:
            return self._rejection(UnknownPartition(self._closed_why))
        try:
            now_ms = self._clock.now_ms()
            if self._ledger.is_terminated:
                aborted = state.end_without_marker(producer_id, epoch, now_ms, is_commit=is_commit)
                self._checkpointer.ended_without_marker(
                    aborted, partial(self._ended_without_marker, done)
                )
                return None
            offset = state.begin_marker(producer_id, epoch, now_ms, is_commit=is_commit)
        except TopicsError as error:
            return self._rejection(error)
        batch = build_control_batch(
            is_commit=is_commit, producer_id=producer_id, producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch, timestamp_ms=now_ms, base_offset=offset,
            leader_epoch=LEADER_EPOCH,
        )  # fmt: skip
        return self._submit(batch, 1, now_ms, -1, done)

    def _submit(
        self, batch: Buffer, record_count: int, max_timestamp: int, time_ms: int, done: AppendDone
    ) -> AppendResult | None:
        """Hand the batch that was begun last to the ledger."""
        state, size = self._state, len(batch)
        base_offset = state.next_offset - record_count
        try:
            ledger_id, entry_id = self._ledger.append_nowait(
                batch, record_count, max_timestamp, self._pending.appended
            )
        except LedgerError as error:
            state.fail_from(base_offset)
            return self._rejection(from_ledger_error(error))
        except Exception:
            self.close_after_fault()  # it may be appended already, and nobody waits for it
            raise
        self._tail.append(base_offset, size, max_timestamp, ledger_id, entry_id)
        self._pending.waiting.append(
            (done, base_offset, state.next_offset, time_ms, size, max_timestamp)
        )
        return None

    def _ended_without_marker(self, done: AppendDone, error: LedgerError | None) -> None:
        """The end of a transaction that has no marker is durable, or not."""
        ended = AppendResult(None, NO_OFFSET, -1, self._state.log_start_offset)
        done(ended if error is None else self._rejection(from_ledger_error(error)))
        self.notify()

    def _rejection(self, error: TopicsError) -> AppendResult:
        return rejected(error, self._state.log_start_offset)

    # Reading

    def available_bytes(self, offset: int, upto: int) -> int:
        """Bytes of the batches from the one with `offset` up to `upto`; plain and in memory.

        Exact for the newest entries; for older offsets a very large number.
        """
        return self._reader.available_bytes(offset, upto)

    def read_nowait(
        self,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool = False,
        first_batch_always: bool = True,
    ) -> ReadResult | None:
        """Read whole batches from memory. The hot path.

        Args:
            offset: the first record wanted; its batch comes whole.
            max_bytes: stop before more than this.
            read_committed: stop at the last stable offset instead of the high watermark.
            first_batch_always: return the first batch even when it is larger than that.

        Returns:
            None when the storage is needed: `read` then does it.
        """
        if self._closed_why:
            return failed_read(UnknownPartition(self._closed_why))
        self.idle.is_used = True
        limit = self.last_stable_offset if read_committed else self._state.high_watermark
        return self._reader.read_nowait(offset, max_bytes, limit, first_batch_always)

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
            found = await self._reader.read(offset, max_bytes, limit, first_batch_always)
            if self._closed_why:
                return failed_read(UnknownPartition(self._closed_why))
        return found

    # Times

    async def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record, in offset order, that is not older; None when there is none.

        Raises:
            TopicStorageFailed: the log cannot be read.
        """
        return await self._read_stable(partial(self._locator.first_at_time, timestamp))

    async def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The first record with the largest time; None when the log is empty.

        Raises:
            TopicStorageFailed: the log cannot be read.
        """
        return await self._read_stable(self._locator.newest)

    # Places

    async def locate(self, offset: int) -> LogLocation:
        """Find the record at an offset, or the next there is; at the end, the place behind it.

        Raises:
            TopicStorageFailed: the log cannot be read.
        """
        return await self._read_stable(partial(self._locator.locate, offset))

    async def offset_at(self, position: Position) -> int:
        """The first offset at or behind a position: two of them tell how many records lie between.

        Raises:
            TopicStorageFailed: the log cannot be read.
        """
        return await self._read_stable(partial(self._locator.offset_at, position))

    async def _read_stable(self, look: Callable[[], Awaitable[T]]) -> T:
        """Look into the log, again when something may have gone while it was read."""
        self.idle.is_used = True
        while True:
            start = self._state.log_start_offset
            with translated_errors():
                try:
                    found = await look()
                finally:
                    self._check_open()
            if start == self._state.log_start_offset:
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
            await self._checkpointer.raise_log_start(offset, self.notify)
            await self._checkpointer.remove_old(None, self._clock.now_ms(), self.notify)
        return self._state.log_start_offset

    async def enforce_retention(self, committed_offset: int | None = None) -> None:
        """Remove what retention and log start let go, and forget idle producers.

        Args:
            committed_offset: the lowest that a consumer group has committed, for topics that wait
                for groups; None if none has.

        Raises:
            TopicStorageFailed: the storage did not take the change.
        """
        self._check_open()
        self._state.producers.expire(self._clock.now_ms())
        with translated_errors():
            await self._checkpointer.remove_old(
                self.config, self._clock.now_ms(), self.notify, committed_offset=committed_offset
            )

    # Ending

    async def terminate(self) -> Position:
        """Take no more records, for ever; return the position of the last entry.

        Appends that began before are stored, and come first; those that come later are refused
        with TopicTerminated.

        Raises:
            TopicStorageFailed: it was not stored, and nothing has changed.
        """
        self._check_open()
        with translated_errors():
            return await self._ledger.terminate()

    def reconfigure(self, config: TopicConfig) -> None:
        """Let another configuration hold from now on."""
        self.config = config
        self._checkpointer.reconfigure(config)
        self._state.producers.expiration_ms = config.producer_id_expiration_ms

    async def close(self) -> None:
        """Write down what a start would have to work out, then close the ledger; idempotent."""
        if self._closed_why:
            return
        self.mark_closed("closed")
        with suppress(LedgerError):  # without it the next start only takes longer
            await self._checkpointer.close()
        await self._ledger.close()
        self._pending.unlink()

    def close_after_fault(self, error: Exception | None = None) -> None:
        """Refuse everything from now on: what memory has of it is in doubt, what is stored is not.

        Appends under way are answered as failed though they may become durable, as after a lost
        connection; an idempotent producer that sends them again is recognised. May be repeated.
        """
        self.mark_closed("closed after a fault")
        self._ledger.fence()
        self.on_fault(self)
        self._pending.abandon(TopicStorageFailed(f"{self.unit_name} was closed after a fault"))

    def mark_closed(self, why: str) -> None:
        """Refuse everything from now on, tell the listeners, and let go of the ledger; plain."""
        if not self._closed_why:
            self._closed_why = f"partition {self.topic}-{self.index} is {why}"
            self.notify()
            self._ledger.remove_listener(self._ledger_changed)
            if not self._pending.waiting:
                self._pending.unlink()

    def _check_open(self) -> None:
        if self._closed_why:
            raise UnknownPartition(self._closed_why)
