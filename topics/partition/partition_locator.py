"""Partition places: offsets and times into positions, and back. A shell.

Rule: an offset names a record, a position names an entry; the header of the entry found there
decides. What does not exist any more stands for the next that does, and the end for the place that
is to be written next.
Must not know: who keeps which place, appends.
"""

from typing import NamedTuple

from kledger.batches.header import read_header
from kledger.ledger import ManagedLedger, Position
from kledger.topics.partition.offset_lookup import OffsetLookup, TimestampedOffset
from kledger.topics.partition.partition_state import PartitionState
from kledger.topics.partition.tail_state import TailState


class LogLocation(NamedTuple):
    """Where a record is.

    Attributes:
        batch_index: which record of the entry it is.
        batch_size: how many the entry has; 0 behind the last entry.
    """

    position: Position
    batch_index: int
    batch_size: int


class PartitionLocator:
    """Places of one partition."""

    __slots__ = ("_ledger", "_lookup", "_state", "_tail")

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

    async def locate(self, offset: int) -> LogLocation:
        """Find the record at an offset, or the next there is.

        Raises:
            LedgerError, BatchError: the log cannot be read.
        """
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
        """The first offset at or behind a position.

        Raises:
            LedgerError, BatchError: the log cannot be read.
        """
        state = self._state
        entries = await self._ledger.read_entries(position, 1)
        if not entries:
            return state.high_watermark
        return max(read_header(entries[0][1]).base_offset, state.log_start_offset)

    async def first_at_time(self, timestamp: int) -> TimestampedOffset | None:
        """The first record, in offset order, that is not older.

        Raises:
            LedgerError, BatchError: the log cannot be read.
        """
        start, end = self._state.log_start_offset, self._state.high_watermark
        return await self._lookup.first_at_time(timestamp, start_offset=start, end_offset=end)

    async def newest(self) -> TimestampedOffset | None:
        """The first record with the largest time.

        Raises:
            LedgerError, BatchError: the log cannot be read.
        """
        start, end = self._state.log_start_offset, self._state.high_watermark
        return await self._lookup.newest(start_offset=start, end_offset=end)
