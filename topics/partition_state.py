"""Partition state: what may be appended, and which offsets it gets.

Rule: offsets are given out when an append begins and taken back when it fails, so a failed append
consumes none. The high watermark moves only when an append is confirmed; appends are confirmed in
the order in which they began, and when one fails, all later ones fail with it.
Must not know: storage, callbacks, clocks; it says what was pending, the shell tells who waits.
"""

from collections import deque
from typing import NamedTuple

from batches.header import BatchHeader
from topics.errors import InvalidTransactionState
from topics.producer_state import (
    SEQUENCE_MASK,
    BatchRange,
    ProducerEntry,
    ProducerTable,
    last_sequence,
)

_new_tuple = tuple.__new__  # a third of the cost of a class's own constructor


class PendingAppend(NamedTuple):
    """An append whose outcome is not known yet, with what it takes to undo it."""

    base_offset: int
    next_offset: int
    producer_id: int
    previous: ProducerEntry | None


class PartitionState:
    """Offsets and producers of one partition."""

    __slots__ = ("high_watermark", "log_start_offset", "next_offset", "pending", "producers")

    def __init__(
        self, *, producers: ProducerTable, log_start_offset: int, next_offset: int
    ) -> None:
        assert 0 <= log_start_offset <= next_offset, f"{log_start_offset} > {next_offset}"
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.high_watermark = next_offset
        self.next_offset = next_offset
        self.pending: deque[PendingAppend] = deque()

    def admit(self, header: BatchHeader, now_ms: int) -> BatchRange | None:
        """Decide about a checked batch; nothing changes.

        Returns:
            None: append it. A range: it is there, or on its way there, already.

        Raises:
            InvalidProducerEpoch, OutOfOrderSequence: see `ProducerTable.admit`.
            InvalidTransactionState: no transaction can be open here.
        """
        if header.producer_id < 0:
            return None
        if header.is_transactional:
            raise InvalidTransactionState(
                f"transactional batch of producer {header.producer_id}, which has no transaction"
            )
        return self.producers.admit(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
            now_ms,
        )

    def begin(self, header: BatchHeader, log_append_time_ms: int, now_ms: int) -> int:
        """Give out offsets for an admitted batch and remember it.

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
            previous = self.producers.append(producer_id, header.producer_epoch, batch, now_ms)
        self.pending.append(
            _new_tuple(PendingAppend, (base_offset, next_offset, producer_id, previous))
        )
        self.next_offset = next_offset
        return base_offset

    def confirm(self) -> PendingAppend:
        """The oldest pending append is durable: it becomes visible."""
        append = self.pending.popleft()
        self.high_watermark = append.next_offset
        return append

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
            self.next_offset = append.base_offset
            count += 1
        assert self.next_offset >= self.high_watermark, "undid a durable append"
        return count

    def is_pending(self, base_offset: int) -> bool:
        """Whether the append at that offset waits for its outcome."""
        return base_offset >= self.high_watermark

    def raise_log_start(self, offset: int) -> bool:
        """Move the log start up to a durable offset; return whether it moved."""
        assert offset <= self.high_watermark, f"log start {offset} > {self.high_watermark}"
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        return True

    def replay(self, header: BatchHeader, now_ms: int) -> None:
        """Take in a batch that was found in the log at the start, whatever it says."""
        next_offset = header.last_offset + 1
        if header.producer_id >= 0 and header.base_sequence >= 0:
            count = header.last_offset_delta + 1
            batch = BatchRange(
                header.base_sequence,
                last_sequence(header.base_sequence, count),
                header.base_offset,
                next_offset,
                header.max_timestamp if header.is_log_append_time else -1,
            )
            self.producers.append(header.producer_id, header.producer_epoch, batch, now_ms)
        self.next_offset = self.high_watermark = next_offset

    def confirmed_producers(self) -> dict[int, ProducerEntry]:
        """The producers as they are in the durable part of the log."""
        entries = dict(self.producers.items())
        for append in reversed(self.pending):
            if append.producer_id < 0:
                continue
            if append.previous is None:
                entries.pop(append.producer_id, None)
            else:
                entries[append.producer_id] = append.previous
        return entries
