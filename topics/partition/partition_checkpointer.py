"""Partition notes: the rows that a partition keeps beside its log. A shell.

Rule: notes describe confirmed entries only and are written behind them, so whatever subset of them
a crash leaves is true; all can be worked out again from the log. Except a log start that was set,
which is therefore durable before anything is removed for it; and transactions that ended when the
log took no marker any more, whose ends are told when they are durable here.
Must not know: appends, readers.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from kledger.ledger import (
    LATEST,
    AlreadyClosed,
    LedgerError,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
)
from kledger.runtime.blocking import PoolClosed
from kledger.runtime.tasks import Supervisor
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.keys import PartitionKeys
from kledger.topics.partition import records
from kledger.topics.partition.offset_index import (
    UNKNOWN,
    IndexRow,
    LedgerSummary,
    OffsetIndex,
    interval_bytes,
)
from kledger.topics.partition.partition_locator import PartitionLocator
from kledger.topics.partition.partition_state import PartitionState
from kledger.topics.partition.retention_plan import KeptLedger, Removal, plan_removal
from kledger.topics.partition.transaction_state import AbortedTransaction

Row = tuple[bytes, bytes | None]
CHECKPOINT_ENTRIES_MIN = 1000
CHECKPOINT_ENTRIES_PER_PRODUCER = 4
CHECKPOINT_BYTES = 32 << 20
ENCODED_INLINE_MAX = 64
"""A checkpoint of more producers is encoded in a thread: 10,000 take some 50 ms."""
DELETED_ROWS_MAX = 1000
ENTRIES_PER_LEDGER = 1_000_000
NO_POSITION = Position(-1, -1)
PendingRow = IndexRow | AbortedTransaction
RowsDone = Callable[[LedgerError | None], None]
AppendRows = Callable[[Sequence[Row], RowsDone], None]


def ledger_config(config: TopicConfig, *, shown_as: str | None = None) -> ManagedLedgerConfig:
    """The managed ledger's settings for a topic; what may go is decided here, not there."""
    return ManagedLedgerConfig(
        max_entries_per_ledger=ENTRIES_PER_LEDGER,
        max_bytes_per_ledger=config.segment_bytes,
        max_rollover_ms=config.segment_ms,
        shown_as=shown_as,
    )


class _UnconsumedFrom(NamedTuple):
    """What lies behind the position, or at or behind the offset, is owed to somebody."""

    position: Position
    offset: int


class PartitionCheckpointer:
    """Checkpoint, log start and index rows of one partition."""

    def __init__(
        self,
        *,
        store: LedgerStore,
        ledger: ManagedLedger,
        keys: PartitionKeys,
        state: PartitionState,
        index: OffsetIndex,
        locator: PartitionLocator,
        supervisor: Supervisor,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._keys = keys
        self._state = state
        self._index = index
        self._locator = locator
        self._supervisor = supervisor
        self._position = NO_POSITION
        self._entries_since = 0
        self._bytes_since = 0
        self._checkpoint_entries = CHECKPOINT_ENTRIES_MIN
        self._checkpoint_number = 0
        """Of the newest that was begun; an older one that is still being encoded is dropped."""
        self._is_encoding = False
        self._unwritten: list[PendingRow] = []
        self._oldest_ledger_id = 0
        self._removing = asyncio.Lock()
        self._raising = asyncio.Lock()

    def confirmed(
        self,
        position: Position,
        base_offset: int,
        next_offset: int,
        size: int,
        max_timestamp: int,
    ) -> None:
        """Take in the next durable entry. On the hot path."""
        self._position = position
        rows = self._index.note(
            position[0],
            position[1],
            base_offset=base_offset,
            next_offset=next_offset,
            size=size,
            max_timestamp=max_timestamp,
        )
        self._entries_since += 1
        self._bytes_since += size
        is_due = (
            self._entries_since >= self._checkpoint_entries or self._bytes_since >= CHECKPOINT_BYTES
        )
        if rows or is_due:
            self._write_lazily(rows, with_checkpoint=is_due)

    def resume(self, position: Position, *, entries: int, size: int) -> None:
        """Continue behind what was found at the start, not checkpointed yet."""
        self._position = position
        self._entries_since = entries
        self._bytes_since = size

    def reconfigure(self, config: TopicConfig) -> None:
        """Let other settings hold."""
        self._index.interval_size = interval_bytes(config.segment_bytes)
        self._ledger.reconfigure(ledger_config(config))

    def aborted(self, aborted: AbortedTransaction) -> None:
        """Take in a transaction that was aborted by the newest durable entry."""
        self._write_lazily([aborted], with_checkpoint=False)

    def ended_without_marker(self, aborted: AbortedTransaction | None, done: RowsDone) -> None:
        """Write down that a transaction has ended behind the last entry there will be.

        Args:
            aborted: if it was; None: the checkpoint says all of it.
            done: hears when that is durable; a failure is made good by the next that is written.
        """
        rows = () if aborted is None else (aborted,)
        self._write(rows, self._store.append_rows_nowait, done, with_checkpoint=True)

    def write_rows(
        self, rows: Sequence[IndexRow], aborted: Sequence[AbortedTransaction] = ()
    ) -> None:
        """Write rows that were worked out at the start."""
        if rows or aborted:
            self._write_lazily([*rows, *aborted], with_checkpoint=False)

    async def close(self) -> None:
        """Let a removal come to its end, then write down producers and log end, if they moved.

        Raises:
            LedgerError: it was not stored.
        """
        async with self._removing, self._raising:
            if self._entries_since or self._unwritten or self._is_encoding:
                pending_rows, self._unwritten = self._unwritten, []
                checkpoint = await self._checkpoint_row()
                await self._store.put_rows([*self._encoded(pending_rows), checkpoint])

    async def raise_log_start(self, offset: int, moved: Callable[[], None]) -> None:
        """Make the log begin at an offset: durably first, then for everyone, cursors last.

        A caller that is cancelled does not stop it halfway.

        Raises:
            LedgerError, BatchError: it was not stored, or the entry there cannot be read; it may
                be tried again.
        """

        async def work() -> None:
            await self._raise_log_start(offset, moved)
            await self.move_cursors_to_log_start()

        await self._supervisor.finish(work(), f"log start of {self._ledger.name}")

    async def _raise_log_start(self, offset: int, moved: Callable[[], None]) -> None:
        async with self._raising:  # the row of a lower offset must not come behind this one's
            if offset > self._state.log_start_offset:
                row = (self._keys.log_start, records.encode_log_start(offset))
                await self._store.put_rows([row, await self._checkpoint_row()])
                if self._state.raise_log_start(offset):
                    moved()

    async def move_cursors_to_log_start(self) -> None:
        """Let no cursor be owed what lies before the log start.

        Raises:
            LedgerError, BatchError: the entry there cannot be read.
        """
        if self._ledger.has_cursors:
            log_start = await self._locator.locate(self._state.log_start_offset)
            self._ledger.acknowledge_before(
                log_start.position, records=log_start.batch_index, batch_size=log_start.batch_size
            )

    async def remove_old(
        self,
        config: TopicConfig | None,
        now_ms: int,
        moved: Callable[[], None],
        *,
        committed_offset: int | None = None,
    ) -> None:
        """Remove the ledgers that may go; one removal at a time.

        A caller that is cancelled does not stop it halfway.

        Args:
            config: what holds in the topic; None: only what lies before the log start goes.
            now_ms: wall time.
            moved: called when the log start has moved.
            committed_offset: the lowest that a group has committed; None if none has.

        Raises:
            LedgerError: the storage did not take it; the rest goes the next time.
        """
        work = self._remove_old(config, now_ms, moved, committed_offset)
        await self._supervisor.finish(work, f"removal from {self._ledger.name}")

    async def _remove_old(
        self,
        config: TopicConfig | None,
        now_ms: int,
        moved: Callable[[], None],
        committed_offset: int | None,
    ) -> None:
        def kept_ledgers() -> list[KeptLedger]:
            return self._kept_ledgers(self._unconsumed_from(config, committed_offset))

        async with self._removing:
            removal = self._plan(config, now_ms, kept_ledgers())
            if removal is not None and removal.is_roll_needed:
                await self._ledger.roll_over()
                # What was appended meanwhile may have gone into the ledger that was to go.
                closed = [each for each in kept_ledgers() if not each.is_open]
                removal = self._plan(config, now_ms, closed)
            if removal is None:
                return
            oldest = self._ledger.ledgers[0].ledger_id
            await self._raise_log_start(removal.next_offset, moved)
            await self._ledger.trim_before(Position(removal.ledger_id + 1, 0))
            self._oldest_ledger_id = removal.ledger_id + 1
            self._index.remove_before(self._oldest_ledger_id)
            await self.remove_stale_rows(oldest)

    async def remove_stale_rows(self, since_ledger_id: int = 0) -> None:
        """Remove the rows of ledgers that are gone: the step of a removal that a crash leaves out.

        Args:
            since_ledger_id: rows of older ledgers are known to have gone.

        Raises:
            LedgerError: it was not stored.
        """
        ledgers = self._ledger.ledgers
        if not ledgers:  # the partition was terminated before it had anything
            return
        kept = ledgers[0].ledger_id
        for key_of in (self._keys.ledger_intervals, self._keys.ledger_summary):
            start, end = key_of(since_ledger_id), key_of(kept)
            await self._remove_rows(start, end)
        log_start = self._state.log_start_offset
        if self._state.transactions.aborted.remove_before(log_start):
            await self._remove_rows(self._keys.aborted_at(0), self._keys.aborted_at(log_start))

    async def _remove_rows(self, start: bytes, end: bytes) -> None:
        scan = partial(self._store.scan_rows_between, start, end, limit=DELETED_ROWS_MAX)
        while stale := await self._store.run_blocking(scan):
            await self._store.put_rows([(key, None) for key, _ in stale])

    def _plan(
        self, config: TopicConfig | None, now_ms: int, ledgers: list[KeptLedger]
    ) -> Removal | None:
        start = self._state.log_start_offset
        return plan_removal(ledgers, config, log_start_offset=start, now_ms=now_ms)

    def _unconsumed_from(
        self, config: TopicConfig | None, committed_offset: int | None
    ) -> _UnconsumedFrom:
        """Tell what must stay for those for whom the topic waits."""
        position, offset = LATEST, UNKNOWN
        if config is not None and config.waits_for_subscriptions:
            position = self._ledger.slowest_position or LATEST
        if config is not None and config.waits_for_groups and committed_offset is not None:
            offset = committed_offset
        return _UnconsumedFrom(position, offset)

    def _kept_ledgers(self, unconsumed: _UnconsumedFrom) -> list[KeptLedger]:
        known = {
            ledger_summary.ledger_id: ledger_summary
            for ledger_summary in self._index.all_summaries()
        }
        kept = []
        for info in self._ledger.ledgers:
            ledger_summary = known.get(info.ledger_id)
            if ledger_summary is None or not info.entries:
                continue
            newest = ledger_summary.max_timestamp
            if newest < 0:  # no record of it has a time
                newest = info.closed_ms if info.closed_ms is not None else UNKNOWN
            is_open = info.closed_ms is None
            last = Position(info.ledger_id, info.entries - 1)
            is_unconsumed = (
                last > unconsumed.position or ledger_summary.next_offset > unconsumed.offset
            )
            kept.append(
                KeptLedger(
                    info.ledger_id,
                    info.size,
                    ledger_summary.next_offset,
                    newest,
                    is_open,
                    is_unconsumed,
                )
            )
        return kept

    def _checkpoint(self) -> records.Checkpoint:
        """Take down what is durable now; entries of producers are values, so it stays as it is."""
        producers = self._state.confirmed_producers()
        self._checkpoint_number += 1
        self._entries_since = self._bytes_since = 0
        self._checkpoint_entries = max(
            CHECKPOINT_ENTRIES_MIN, CHECKPOINT_ENTRIES_PER_PRODUCER * len(producers)
        )
        return records.Checkpoint(
            self._state.high_watermark, self._position[0], self._position[1], producers
        )

    async def _checkpoint_row(self) -> Row:
        """Encode a checkpoint that no newer one has been taken since; raises AlreadyClosed."""
        while True:
            checkpoint = self._checkpoint()
            number = self._checkpoint_number
            row = await self._encoded_in_pool(checkpoint)
            if number == self._checkpoint_number:
                return row

    async def _encoded_in_pool(self, checkpoint: records.Checkpoint) -> Row:
        """Encode a checkpoint, in a thread when it is large."""
        encode, compute_pool = records.encode_checkpoint, self._store.compute_pool
        if len(checkpoint.producers) <= ENCODED_INLINE_MAX:
            return self._keys.checkpoint, encode(checkpoint)
        try:
            return self._keys.checkpoint, await compute_pool.run(
                encode, checkpoint, compute_pool.yield_gil
            )
        except PoolClosed:
            raise AlreadyClosed("the store was closed during a checkpoint") from None

    async def _write_checkpoint_in_pool(self, checkpoint: records.Checkpoint) -> None:
        """Write a large checkpoint into a group to come, unless a newer one has overtaken it."""
        number = self._checkpoint_number
        try:
            row = await self._encoded_in_pool(checkpoint)
            if number == self._checkpoint_number:
                self._store.append_rows_lazily([row], _ignore)
        except LedgerError:
            pass  # the next one says more
        finally:
            self._is_encoding = False

    def _write_lazily(self, rows: Sequence[PendingRow], *, with_checkpoint: bool) -> None:
        """Put rows into a group to come; a large checkpoint follows when it is encoded."""
        if with_checkpoint and len(self._state.producers) > ENCODED_INLINE_MAX:
            with_checkpoint = False
            if not self._is_encoding:
                self._is_encoding = True
                work = self._write_checkpoint_in_pool(self._checkpoint())
                self._supervisor.spawn(work, f"checkpoint of {self._ledger.name}")
        if rows or self._unwritten or with_checkpoint:
            append = self._store.append_rows_lazily
            self._write(rows, append, _ignore, with_checkpoint=with_checkpoint)

    def _write(
        self,
        rows: Sequence[PendingRow],
        append: AppendRows,
        done: RowsDone,
        *,
        with_checkpoint: bool,
    ) -> None:
        """Write rows; those that fail are tried again with later ones."""
        pending_rows, self._unwritten = [*self._unwritten, *rows], []
        written = self._encoded(pending_rows)
        if with_checkpoint:
            written.append((self._keys.checkpoint, records.encode_checkpoint(self._checkpoint())))

        def finished(error: LedgerError | None) -> None:
            if error is not None:
                self._unwritten += pending_rows
            done(error)

        try:
            append(written, finished)
        except LedgerError as error:
            finished(error)

    def _encoded(self, pending_rows: Sequence[PendingRow]) -> list[Row]:
        """Return the rows of those whose ledger, or end, is still there."""
        oldest, log_start = self._oldest_ledger_id, self._state.log_start_offset
        return [
            self._encode(row)
            for row in pending_rows
            if (
                row.last_offset >= log_start
                if isinstance(row, AbortedTransaction)
                else row.ledger_id >= oldest
            )
        ]

    def _encode(self, row: PendingRow) -> Row:
        if isinstance(row, AbortedTransaction):
            return self._keys.aborted_at(row.last_offset), records.encode_aborted(row)
        if isinstance(row.content, LedgerSummary):
            return self._keys.ledger_summary(row.ledger_id), records.encode_ledger_summary(
                row.content
            )
        key = self._keys.interval(row.ledger_id, row.content.first_entry)
        return key, records.encode_interval(row.content)


def _ignore(_error: LedgerError | None) -> None:
    """What was not written comes with later rows."""
