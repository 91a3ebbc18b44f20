"""Compacted log: the part of a partition that a compaction has rewritten.

Rule: below `end_offset` a read returns what the compaction has kept, at and above it what was
appended; a result has batches of one of the two only. Batches keep their offsets, so between two of
them offsets may be missing. The last batch stays, even without records, so that a reader always
gets to `end_offset`.
Must not know: which records are kept, requests.
"""

from typing import NamedTuple

from kledger.batches.buffers import Buffer
from kledger.batches.header import read_header
from kledger.ledger import (
    LATEST,
    CompactedLedger,
    CompactedLedgerReplaced,
    Entry,
    LedgerStore,
    ManagedLedger,
    NewEntry,
    Position,
)
from kledger.topics.keys import PartitionKeys
from kledger.topics.partition.index_rows import IndexRows
from kledger.topics.partition.offset_index import LedgerSummary, OffsetIndex
from kledger.topics.partition.offset_lookup import OffsetLookup
from kledger.topics.partition.read_hints import ReadHints
from kledger.topics.partition.results import LogLocation

READ_ENTRIES_MAX = 4096


class CompactedBatch(NamedTuple):
    """A batch as a compaction has stored it.

    Attributes:
        position: of the entry that it was made from.
        delete_horizon_ms: when its tombstones may go; 0 if it has none.
    """

    position: Position
    delete_horizon_ms: int
    batch: Buffer


class CompactedUpTo(NamedTuple):
    """The last record that a compaction has read.

    Attributes:
        position: of its entry.
        batch_index: which record of the entry it is, or was.
        offset: its offset.
    """

    position: Position
    batch_index: int
    offset: int


def new_entry(kept: CompactedBatch) -> NewEntry:
    """Return the entry of a batch; its attribute is the delete horizon."""
    return NewEntry(kept.position, (kept.batch,), kept.delete_horizon_ms)


class CompactedLog:
    """What a compaction made of the beginning of a partition; it never changes."""

    def __init__(
        self,
        store: LedgerStore,
        ledger: ManagedLedger,
        keys: PartitionKeys,
        compacted: CompactedLedger,
        summary: LedgerSummary,
    ) -> None:
        """Describe one.

        Args:
            store: has the rows.
            ledger: of the partition.
            keys: of the partition.
            compacted: the ledger that the compaction has written.
            summary: of that ledger.
        """
        self.compacted = compacted
        self.summary = summary
        self._entries = CompactedEntries(ledger, compacted)
        self.rows = IndexRows(store, keys)
        index = OffsetIndex(0)
        index.add_summary(summary)
        self.lookup = OffsetLookup(store, self._entries, self.rows, index)
        self.hints = ReadHints()

    @property
    def end_offset(self) -> int:
        """The first offset behind it."""
        return self.summary.next_offset

    async def read(self, offset: int, max_bytes: int) -> list[Entry]:
        """Read batches from the one on that ends at or after an offset.

        Raises:
            CompactedLedgerReplaced: another compaction has completed.
            LedgerError: the first batch cannot be read.
        """
        start = self.hints.get(offset) or await self.lookup.find(offset)
        return await self._entries.read_entries(start, READ_ENTRIES_MAX, bytes_max=max_bytes)

    async def batch_from(self, position: Position) -> CompactedBatch | None:
        """Return the first batch at or after a position; None at the end. Raises as `read`."""
        number = await self._entries.find(position)
        found = await self._entries.batches(number, 1, None)
        return found[0] if found else None

    async def locate(self, offset: int) -> LogLocation:
        """Find the record at an offset below the end, or the next one. Raises as `read`."""
        start = await self.lookup.find(offset)
        ((position, _, batch),) = await self._entries.batches(start.entry_id, 1, None)
        header = read_header(batch)
        index = max(offset - header.base_offset, 0)
        return LogLocation(position, index, header.last_offset_delta + 1)

    async def locate_time(self, timestamp: int, start_offset: int) -> LogLocation | None:
        """Find the first record from an offset on that is not older; None if all are.

        Raises as `read`.
        """
        found = await self.lookup.first_at_time(
            timestamp, start_offset=start_offset, end_offset=self.end_offset
        )
        return None if found is None else await self.locate(found.offset)

    async def upto(self) -> CompactedUpTo:
        """Return the last record that it stands for; its batch is always kept. Raises as `read`."""
        (last,) = await self._entries.batches(self.compacted.entries - 1, 1, None)
        header = read_header(last.batch)
        return CompactedUpTo(
            last.position, header.last_offset - header.base_offset, header.last_offset
        )

    async def batches(self, first: int, count: int, max_bytes: int) -> list[CompactedBatch]:
        """Read batches from the entry with that number on, in a thread; none at the end.

        Raises as `read`.
        """
        return await self._entries.batches(first, count, max_bytes, is_background=True)


class CompactedEntries:
    """The entries of one compacted ledger, as `OffsetLookup` searches them.

    Positions are those of the compacted ledger itself.
    """

    def __init__(self, ledger: ManagedLedger, compacted: CompactedLedger) -> None:
        self._ledger = ledger
        self._compacted = compacted

    @property
    def first_position(self) -> Position:
        """The position before the first entry."""
        return Position(self._compacted.ledger_id, -1)

    def next_valid_position(self, position: Position) -> Position:
        """Return the next position."""
        return position.successor

    def number_of_entries(self, start: Position, end: Position) -> int:
        """Count the entries from `start` to `end`, both included."""
        upto = min(end.entry_id + 1, self._compacted.entries)
        return max(0, upto - max(start.entry_id, 0))

    async def read_entries(
        self,
        start: Position,
        count: int,
        max_position: Position = LATEST,
        *,
        bytes_max: int | None = None,
    ) -> list[Entry]:
        """Read batches; see `ManagedLedger.read_entries`."""
        if start.ledger_id != self._compacted.ledger_id:
            raise CompactedLedgerReplaced(f"{start} is not in {self._compacted.ledger_id}")
        first = max(start.entry_id, 0)
        count = min(count, self.number_of_entries(Position(start.ledger_id, first), max_position))
        if count <= 0:
            return []
        ledger_id = start.ledger_id
        return [
            Entry(Position(ledger_id, number), each.batch)
            for number, each in enumerate(await self.batches(first, count, bytes_max), first)
        ]

    async def find(self, position: Position) -> int:
        """Return the number of the first entry that was made from one at or after a position."""
        return await self._ledger.compacted_reader.find(self._compacted, position)

    async def batches(
        self, first: int, count: int, max_bytes: int | None, *, is_background: bool = False
    ) -> list[CompactedBatch]:
        """Read batches with what is stored beside them; see `ManagedLedger.read_entries`."""
        found = await self._ledger.compacted_reader.read(
            self._compacted, first, count=count, bytes_max=max_bytes, is_background=is_background
        )
        return [CompactedBatch(each.position, each.attribute, each.data) for each in found]
