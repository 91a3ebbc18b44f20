"""Partition reader: the read side of a partition log. A shell.

Rule: what memory has is answered without waiting; elsewhere a hint or the offset index says where
to begin, and the headers of what was read decide. An answer is made of whole stored batches, none
of them copied, and never reaches behind the limit that the caller sets.
Must not know: appends, requests.
"""

from kledger.batches.buffers import Buffer
from kledger.batches.errors import BatchError
from kledger.batches.header import BatchHeader, read_header
from kledger.ledger import Entry, LedgerError, ManagedLedger, Position
from kledger.topics.errors import OffsetOutOfRange, TopicStorageFailed
from kledger.topics.partition.offset_lookup import OffsetLookup
from kledger.topics.partition.partition_state import PartitionState
from kledger.topics.partition.read_hints import ReadHints
from kledger.topics.partition.results import ReadResult, failed_read, from_ledger_error
from kledger.topics.partition.tail_state import TailState

BYTES_UNKNOWN = 1 << 40
READ_ENTRIES_MAX = 4096
_new_tuple = tuple.__new__  # a third of the cost of a class's own constructor


class PartitionReader:
    """Reads of one partition."""

    __slots__ = ("_hints", "_ledger", "_lookup", "_state", "_tail")

    def __init__(
        self,
        *,
        state: PartitionState,
        tail: TailState,
        ledger: ManagedLedger,
        lookup: OffsetLookup,
    ) -> None:
        self._state = state
        self._tail = tail
        self._ledger = ledger
        self._lookup = lookup
        self._hints = ReadHints()

    def available_bytes(self, offset: int, upto: int) -> int:
        """Bytes from the batch with `offset` up to `upto`, or a very large number."""
        if offset >= upto:
            return 0
        found = self._tail.bytes_between(offset, upto)
        return BYTES_UNKNOWN if found is None else found

    def read_nowait(
        self, offset: int, max_bytes: int, limit: int, first_batch_always: bool
    ) -> ReadResult | None:
        """Read from memory, below the offset `limit`; None when the storage is needed."""
        state = self._state
        if not state.log_start_offset <= offset < limit:
            return self._edge(offset)
        tail = self._tail
        row = tail.find(offset)
        if row < 0:
            return self._read_hinted(offset, max_bytes, limit, first_batch_always)
        end_row = tail.end_row(row, limit, max_bytes)
        if end_row == row:
            if not first_batch_always:
                return self._result([], 0)
            end_row = row + 1
        count = end_row - row
        start = Position(tail.ledger_ids[row], tail.entry_ids[row])
        try:
            entries = self._ledger.read_cached(start, count)
        except LedgerError as error:
            return failed_read(from_ledger_error(error))
        if entries is None or len(entries) != count:
            return None
        if tail.bases[row] != offset and read_header(entries[0][1]).last_offset < offset:
            # Compaction took the batch that had it: the next one there is.
            return self.read_nowait(tail.bases[row + 1], max_bytes, limit, first_batch_always)
        return self._result([entry[1] for entry in entries], tail.size_of(row, end_row))

    async def read(
        self, offset: int, max_bytes: int, limit: int, first_batch_always: bool
    ) -> ReadResult:
        """Read from wherever the batches are, below the offset `limit`."""
        try:
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
        except LedgerError as error:
            return failed_read(from_ledger_error(error))
        except BatchError as error:
            return failed_read(TopicStorageFailed(f"stored entry is no batch: {error}"))
        if offset < self._state.log_start_offset:  # it moved while the storage was read
            return self._edge(offset)
        return self._cut(entries, offset, max_bytes, limit, first_batch_always)

    def _read_hinted(
        self, offset: int, max_bytes: int, limit: int, first_batch_always: bool
    ) -> ReadResult | None:
        """Continue, from memory, where a reader that is behind the tail has stopped."""
        start = self._hints.get(offset)
        if start is None:
            return None
        try:
            entries = self._ledger.read_cached(start, READ_ENTRIES_MAX, max_bytes)
        except LedgerError as error:
            return failed_read(from_ledger_error(error))
        if not entries:
            return None
        return self._cut(entries, offset, max_bytes, limit, first_batch_always)

    def _cut(
        self,
        entries: list[Entry],
        offset: int,
        max_bytes: int,
        limit: int,
        first_batch_always: bool,
    ) -> ReadResult:
        """Keep what lies at or behind the offset and below the limit, within the bytes."""
        chunks: list[Buffer] = []
        size = 0
        last: tuple[BatchHeader, Position] | None = None
        for position, buffer in entries:
            header = read_header(buffer)
            if header.last_offset < offset:
                continue
            if header.base_offset >= limit:
                break
            if size + len(buffer) > max_bytes and (chunks or not first_batch_always):
                break
            chunks.append(buffer)
            size += len(buffer)
            last = header, position
        if last is None and first_batch_always:
            return failed_read(TopicStorageFailed(f"no entry holds offset {offset}"))
        if last is not None:
            self._hints.put(last[0].last_offset + 1, last[1].successor)
        return self._result(chunks, size)

    def _result(self, chunks: list[Buffer], size: int) -> ReadResult:
        state = self._state
        stable = state.last_stable_offset
        fields = (None, chunks, size, state.high_watermark, stable, state.log_start_offset)
        return _new_tuple(ReadResult, fields)

    def _edge(self, offset: int) -> ReadResult:
        """Nothing to return: the log ends here, or the offset lies outside of it."""
        state = self._state
        if state.log_start_offset <= offset <= state.high_watermark:
            return self._result([], 0)
        return failed_read(
            OffsetOutOfRange(
                f"offset {offset}, expected {state.log_start_offset} to {state.high_watermark}"
            )
        )
