"""Partition checkpointer: the rows that a partition keeps beside its log. A shell.

Rule: rows describe confirmed entries only and are written after them, so any subset of them that a
crash leaves is true, and opening the partition computes the others from the log. One thing stands
in rows alone: transactions that ended in a terminated log, which takes no markers; their ends are
confirmed when the row is durable. The log start is a row too; `LogTrimmer` writes it.
Must not know: appends, readers, retention.
"""

from collections.abc import Callable, Sequence

from kledger.ledger import (
    AlreadyClosed,
    LedgerError,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    OffloadPolicies,
    Position,
    Row,
    RowsDone,
    ignore_outcome,
)
from kledger.runtime.blocking import PoolClosed
from kledger.runtime.tasks import Supervisor
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.keys import PartitionKeys
from kledger.topics.partition import records
from kledger.topics.partition.offset_index import (
    IndexRow,
    LedgerSummary,
    OffsetIndex,
    interval_bytes,
)
from kledger.topics.partition.partition_state import PartitionState
from kledger.topics.partition.transaction_state import AbortedTransaction

CHECKPOINT_ENTRIES_MIN = 1000
CHECKPOINT_ENTRIES_PER_PRODUCER = 4
CHECKPOINT_BYTES = 32 << 20
ENCODED_INLINE_MAX = 64
"""A checkpoint of more producers is encoded in a thread: 10,000 take some 50 ms."""
ENTRIES_PER_LEDGER = 1_000_000
NO_POSITION = Position(-1, -1)
PendingRow = IndexRow | AbortedTransaction

AppendRows = Callable[[Sequence[Row], RowsDone], None]


def ledger_config(
    config: TopicConfig, offload: OffloadPolicies, *, shown_as: str | None = None
) -> ManagedLedgerConfig:
    """Settings of a partition's managed ledger; retention is the decision of `LogTrimmer`."""
    return ManagedLedgerConfig(
        max_entries_per_ledger=ENTRIES_PER_LEDGER,
        max_bytes_per_ledger=config.segment_bytes,
        max_rollover_ms=config.segment_ms,
        shown_as=shown_as,
        offload=offload,
    )


class PartitionCheckpointer:
    """Checkpoint and index rows of one partition."""

    def __init__(
        self,
        *,
        store: LedgerStore,
        ledger: ManagedLedger,
        keys: PartitionKeys,
        state: PartitionState,
        index: OffsetIndex,
        supervisor: Supervisor,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._keys = keys
        self._state = state
        self._index = index
        self._supervisor = supervisor
        self._position = NO_POSITION
        self._entries_since = 0
        self._bytes_since = 0
        self._checkpoint_entries = CHECKPOINT_ENTRIES_MIN
        self._checkpoint_number = 0
        """Of the newest that was begun; an older one that a thread still encodes is dropped."""
        self._is_encoding = False
        self._unwritten: list[PendingRow] = []
        self._oldest_ledger_id = 0

    def confirmed(
        self,
        position: Position,
        base_offset: int,
        next_offset: int,
        size: int,
        max_timestamp: int,
    ) -> None:
        """Count the next durable entry. On the hot path."""
        self._position = position
        rows = self._index.add_entry(
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
        """Continue after the entries that the opening has found without a checkpoint."""
        self._position = position
        self._entries_since = entries
        self._bytes_since = size

    def reconfigure(self, config: TopicConfig) -> None:
        """Use the settings of another configuration."""
        self._index.interval_size = interval_bytes(config.segment_bytes)

    def aborted(self, aborted: AbortedTransaction) -> None:
        """Write the row of a transaction that the newest durable entry has aborted."""
        self._write_lazily([aborted], with_checkpoint=False)

    def ended_without_marker(self, aborted: AbortedTransaction | None, done: RowsDone) -> None:
        """Write that a transaction has ended in a terminated log.

        Args:
            aborted: the transaction if it was aborted; of a committed one the checkpoint says all.
            done: called when that is durable or has failed; what failed is written with the next
                rows.
        """
        rows = () if aborted is None else (aborted,)
        self._write(rows, self._store.append_rows_nowait, done, with_checkpoint=True)

    def write_rows(
        self, rows: Sequence[IndexRow], aborted: Sequence[AbortedTransaction] = ()
    ) -> None:
        """Write rows that the opening has computed."""
        if rows or aborted:
            self._write_lazily([*rows, *aborted], with_checkpoint=False)

    async def close(self) -> None:
        """Write a checkpoint and the pending rows if anything is newer than the last one.

        Raises:
            LedgerError: it was not stored.
        """
        if self._entries_since or self._unwritten or self._is_encoding:
            pending_rows, self._unwritten = self._unwritten, []
            checkpoint = await self.checkpoint_row()
            await self._store.put_rows([*self._encoded(pending_rows), checkpoint])

    async def checkpoint_row(self) -> Row:
        """Take a checkpoint and encode it; taken again if a newer one was begun meanwhile.

        Raises:
            AlreadyClosed: the store was closed.
        """
        while True:
            checkpoint = self._checkpoint()
            number = self._checkpoint_number
            row = await self._encoded_in_pool(checkpoint)
            if number == self._checkpoint_number:
                return row

    def forget_before(self, ledger_id: int) -> None:
        """Drop the index, and the pending rows, of older ledgers."""
        self._oldest_ledger_id = ledger_id
        self._index.remove_before(ledger_id)

    def _checkpoint(self) -> records.Checkpoint:
        """Take a checkpoint of what is durable; it shares no mutable state with the partition."""
        producers = self._state.confirmed_producers()
        self._checkpoint_number += 1
        self._entries_since = self._bytes_since = 0
        self._checkpoint_entries = max(
            CHECKPOINT_ENTRIES_MIN, CHECKPOINT_ENTRIES_PER_PRODUCER * len(producers)
        )
        state, (ledger_id, entry_id) = self._state, self._position
        return records.Checkpoint(
            state.high_watermark,
            ledger_id,
            entry_id,
            producers,
            state.epochs.kept(state.log_start_offset),
            dict(state.producers.coordinator_epochs),
        )

    async def _encoded_in_pool(self, checkpoint: records.Checkpoint) -> Row:
        """Encode a checkpoint, in a thread if it is large."""
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
        """Encode a large checkpoint; write it with a later group unless a newer one was begun."""
        number = self._checkpoint_number
        try:
            row = await self._encoded_in_pool(checkpoint)
            if number == self._checkpoint_number:
                self._store.append_rows_lazily([row], ignore_outcome)
        except LedgerError:
            pass  # the next checkpoint replaces it
        finally:
            self._is_encoding = False

    def _write_lazily(self, rows: Sequence[PendingRow], *, with_checkpoint: bool) -> None:
        """Write rows with a later group; a large checkpoint follows when it is encoded."""
        if with_checkpoint and len(self._state.producers) > ENCODED_INLINE_MAX:
            with_checkpoint = False
            if not self._is_encoding:
                self._is_encoding = True
                work = self._write_checkpoint_in_pool(self._checkpoint())
                self._supervisor.spawn(work, f"checkpoint of {self._ledger.name}")
        if rows or self._unwritten or with_checkpoint:
            append = self._store.append_rows_lazily
            self._write(rows, append, ignore_outcome, with_checkpoint=with_checkpoint)

    def _write(
        self,
        rows: Sequence[PendingRow],
        append: AppendRows,
        done: RowsDone,
        *,
        with_checkpoint: bool,
    ) -> None:
        """Write rows; those that fail are written with the next ones."""
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
        """Encode the rows whose ledger, or end offset, was not removed."""
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
