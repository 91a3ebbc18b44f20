"""Partition state: what may be appended, and which offsets it gets.

Rule: an append gets its offsets when it begins and returns them when it fails, so a failed append
consumes none. The high watermark moves only when an append is confirmed; appends are confirmed in
the order in which they began, and when one fails, all later ones fail with it. A transaction begins
with a batch that its coordinator has verified, and ends with a marker. `TailState` maps the newest
offsets to entries; the offset index has the older ones.
Must not know: storage, callbacks, clocks.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from kledger.batches.header import TRANSACTIONAL_BIT, BatchHeader
from kledger.topics.errors import InvalidTransactionState
from kledger.topics.partition.leader_epoch_state import LeaderEpochHistory
from kledger.topics.partition.producer_state import (
    NO_TRANSACTION,
    SEQUENCE_MASK,
    BatchRange,
    ProducerEntry,
    ProducerTable,
    last_sequence,
)
from kledger.topics.partition.transaction_state import (
    AbortedTransaction,
    TransactionEnd,
    TransactionState,
)

_new_tuple = tuple.__new__  # a third of the cost of a class's own constructor
TAIL_ENTRIES_MAX = 4096
"""With more rows than this the tail drops its oldest ones, down to `TAIL_ENTRIES_KEPT`."""
TAIL_ENTRIES_KEPT = 2048


class PendingAppend(NamedTuple):
    """An append that is neither confirmed nor failed, and the producer's entry before it."""

    base_offset: int
    next_offset: int
    producer_id: int
    previous: ProducerEntry | None


class PartitionState:
    """Offsets, leader epochs, producers and transactions of one partition.

    Attributes:
        epochs: under which leader epochs it was written.
        deleted_before_offset: DeleteRecords has removed the records before it, also those that a
            compaction has kept; at most the log start, which retention moves, too.
    """

    __slots__ = (
        "deleted_before_offset",
        "epochs",
        "high_watermark",
        "log_start_offset",
        "next_offset",
        "pending",
        "producers",
        "transactions",
    )

    def __init__(
        self, *, producers: ProducerTable, log_start_offset: int, next_offset: int
    ) -> None:
        assert 0 <= log_start_offset <= next_offset, f"{log_start_offset} > {next_offset}"
        self.producers = producers
        self.epochs = LeaderEpochHistory()
        self.log_start_offset = log_start_offset
        self.deleted_before_offset = 0
        self.high_watermark = next_offset
        self.next_offset = next_offset
        self.pending: deque[PendingAppend] = deque()
        self.transactions = TransactionState()

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which every transaction has ended, and everything is durable.

        It is never below the log start: removed transactions hold back nothing.
        """
        stable = self.transactions.stable_offset(self.high_watermark)
        return max(self.log_start_offset, stable)

    def has_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction, so that its batches may be appended."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.epoch == epoch and self.transactions.is_open(producer_id)

    def admit(
        self, header: BatchHeader, now_ms: int, *, is_verified: bool = False
    ) -> BatchRange | None:
        """Decide about a checked batch; nothing changes.

        Args:
            header: of the batch.
            now_ms: wall time.
            is_verified: its producer's transaction is known to include this partition.

        Returns:
            None to append it; the range of its first copy, durable or pending, if it is a
            duplicate.

        Raises:
            InvalidProducerEpoch, OutOfOrderSequence: see `ProducerTable.admit`.
            InvalidTransactionState: it is transactional and its producer has no open transaction in
                the partition, or the other way round.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        duplicate = self.producers.admit(
            producer_id, header.producer_epoch, header.base_sequence, header.record_count, now_ms
        )
        if duplicate is None and header.attributes & TRANSACTIONAL_BIT:
            if not is_verified and not self.has_transaction(producer_id, header.producer_epoch):
                raise InvalidTransactionState(
                    f"transactional batch of producer {producer_id}, which has no transaction here"
                )
        elif duplicate is None and self.transactions.is_open(producer_id):
            raise InvalidTransactionState(
                f"batch outside of the transaction that producer {producer_id} has open here"
            )
        return duplicate

    def begin(self, header: BatchHeader, log_append_time_ms: int, now_ms: int) -> int:
        """Assign offsets to an admitted batch and remember it.

        Returns:
            The offset of its first record.
        """
        base_offset = self.next_offset
        count = header.record_count
        next_offset = base_offset + count
        producer_id = header.producer_id
        previous = None
        if producer_id >= 0:
            first = header.base_sequence
            last = (first + count - 1) & SEQUENCE_MASK
            batch = _new_tuple(
                BatchRange, (first, last, base_offset, next_offset, log_append_time_ms)
            )
            start = NO_TRANSACTION
            if header.attributes & TRANSACTIONAL_BIT:
                start = self.transactions.begin(producer_id, base_offset)
            previous = self.producers.append(
                producer_id, header.producer_epoch, batch, now_ms, start
            )
        self.pending.append(
            _new_tuple(PendingAppend, (base_offset, next_offset, producer_id, previous))
        )
        self.next_offset = next_offset
        return base_offset

    def begin_marker(self, end: TransactionEnd, now_ms: int) -> int:
        """Assign the offset of the marker that ends a producer's transaction.

        Raises:
            InvalidProducerEpoch, CoordinatorFenced: see `ProducerTable.admit_end`; nothing has
                changed.
        """
        self.producers.admit_end(end)
        offset = self.next_offset
        self.next_offset = offset + 1
        self.transactions.end(end.producer_id, offset, is_commit=end.is_commit)
        previous = self.producers.end_transaction(end, now_ms)
        self.pending.append(PendingAppend(offset, offset + 1, end.producer_id, previous))
        return offset

    def end_without_marker(self, end: TransactionEnd, now_ms: int) -> AbortedTransaction | None:
        """End a producer's transaction in a terminated log, which takes no marker.

        Returns:
            The transaction that was aborted by it.

        Raises:
            InvalidProducerEpoch, CoordinatorFenced: see `ProducerTable.admit_end`; nothing has
                changed.
        """
        assert not self.pending, "appends are pending in a terminated log"
        self.producers.admit_end(end)
        self.producers.end_transaction(end, now_ms)
        return self.transactions.end_without_marker(
            end.producer_id, self.high_watermark, is_commit=end.is_commit
        )

    def confirm(self) -> AbortedTransaction | None:
        """Make the oldest pending append visible: it is durable.

        Returns:
            The transaction that it has aborted, if it was the marker of one.
        """
        high_watermark = self.pending.popleft()[1]
        self.high_watermark = high_watermark
        return self.transactions.confirm(high_watermark)

    def fail_from(self, base_offset: int) -> int:
        """Undo the append at that offset and all that began later, newest first.

        Returns:
            How many were undone.
        """
        count = 0
        pending = self.pending
        while pending and pending[-1].base_offset >= base_offset:
            append = pending.pop()
            if append.producer_id >= 0:
                self.producers.restore(append.producer_id, append.previous)
                self.transactions.undo(append.producer_id, append.base_offset)
            self.next_offset = append.base_offset
            count += 1
        assert self.next_offset >= self.high_watermark, "undid a durable append"
        return count

    def is_pending(self, base_offset: int) -> bool:
        """Whether the append at that offset is neither confirmed nor failed."""
        return base_offset >= self.high_watermark

    def raise_log_start(self, offset: int) -> bool:
        """Move the log start up to a durable offset; return whether it moved."""
        assert offset <= self.high_watermark, f"log start {offset} > {self.high_watermark}"
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        return True

    def replay(self, header: BatchHeader, now_ms: int) -> None:
        """Apply a batch that the opening has read from the log, without checks."""
        self.epochs.begin(header.leader_epoch, header.base_offset)
        next_offset = header.last_offset + 1
        producer_id = header.producer_id
        if producer_id >= 0 and header.base_sequence >= 0:
            start = NO_TRANSACTION
            if header.is_transactional:
                start = self.transactions.begin(producer_id, header.base_offset)
            count = header.last_offset_delta + 1
            batch = BatchRange(
                header.base_sequence,
                last_sequence(header.base_sequence, count),
                header.base_offset,
                next_offset,
                header.max_timestamp if header.is_log_append_time else -1,
            )
            self.producers.append(producer_id, header.producer_epoch, batch, now_ms, start)
        self.next_offset = self.high_watermark = next_offset

    def replay_marker(
        self, header: BatchHeader, end: TransactionEnd, now_ms: int
    ) -> AbortedTransaction | None:
        """Apply a marker that was read from the log; return the transaction that it aborted."""
        self.epochs.begin(header.leader_epoch, header.base_offset)
        self.transactions.end(end.producer_id, header.base_offset, is_commit=end.is_commit)
        self.producers.end_transaction(end, now_ms)
        self.next_offset = self.high_watermark = header.base_offset + 1
        return self.transactions.confirm(self.high_watermark)

    def restore(self, producers: Iterable[tuple[int, ProducerEntry]]) -> None:
        """Restore the producers of a checkpoint, with their open transactions."""
        for producer_id, entry in producers:
            self.producers.restore(producer_id, entry)
            if entry.transaction_start != NO_TRANSACTION:
                self.transactions.begin(producer_id, entry.transaction_start)

    def confirmed_producers(self) -> dict[int, ProducerEntry]:
        """The producers without the pending appends."""
        entries = dict(self.producers.items())
        for append in reversed(self.pending):
            if append.producer_id < 0:
                continue
            if append.previous is None:
                entries.pop(append.producer_id, None)
            else:
                entries[append.producer_id] = append.previous
        return entries


class TailState:
    """Where the newest entries are, and how many bytes lie between offsets.

    One row per entry in parallel arrays, 40 bytes a row, oldest first, pending appends last. The
    number of rows is bounded.
    """

    __slots__ = ("_bytes", "bases", "entry_ids", "ledger_ids", "max_timestamps")

    def __init__(self) -> None:
        self.bases = array("q")
        self.ledger_ids = array("q")
        self.entry_ids = array("q")
        self.max_timestamps = array("q")
        self._bytes = array("q", [0])  # one more than rows: bytes before each, and the total

    def __len__(self) -> int:
        return len(self.bases)

    def append(
        self, base_offset: int, size: int, max_timestamp: int, ledger_id: int, entry_id: int
    ) -> None:
        """Add the newest entry."""
        cumulated = self._bytes
        self.bases.append(base_offset)
        self.ledger_ids.append(ledger_id)
        self.entry_ids.append(entry_id)
        self.max_timestamps.append(max_timestamp)
        cumulated.append(cumulated[-1] + size)
        if len(cumulated) > TAIL_ENTRIES_MAX:
            self._drop_oldest(len(self.bases) - TAIL_ENTRIES_KEPT)

    def truncate(self, base_offset: int) -> None:
        """Forget the entry that begins at that offset and all newer ones."""
        row = bisect_left(self.bases, base_offset)
        for column in (self.bases, self.ledger_ids, self.entry_ids, self.max_timestamps):
            del column[row:]
        del self._bytes[row + 1 :]

    def find(self, offset: int) -> int:
        """Row of the entry that holds an offset, -1 if that is older than the tail."""
        return bisect_right(self.bases, offset) - 1

    def position_of(self, offset: int) -> tuple[int, int] | None:
        """Ledger and entry id of the entry that holds an offset, None if older than the tail."""
        row = self.find(offset)
        return None if row < 0 else (self.ledger_ids[row], self.entry_ids[row])

    def bytes_between(self, offset: int, upto: int) -> int | None:
        """Bytes of the entries from the one that holds `offset` to the one before `upto`.

        Returns:
            None when `offset` is older than the tail.
        """
        bases = self.bases
        row = bisect_right(bases, offset) - 1
        if row < 0:
            return None
        cumulated = self._bytes
        return cumulated[bisect_left(bases, upto, row)] - cumulated[row]

    def end_row(self, row: int, upto: int, bytes_max: int) -> int:
        """The first row from `row` on that no longer fits below `upto` or into the bytes."""
        cumulated = self._bytes
        end = bisect_left(self.bases, upto, row)
        return bisect_right(cumulated, cumulated[row] + bytes_max, row, end + 1) - 1

    def size_of(self, row: int, end_row: int) -> int:
        """Bytes of the entries of the rows up to, without, `end_row`."""
        return self._bytes[end_row] - self._bytes[row]

    def _drop_oldest(self, count: int) -> None:
        for column in (self.bases, self.ledger_ids, self.entry_ids, self.max_timestamps):
            del column[:count]
        del self._bytes[:count]
