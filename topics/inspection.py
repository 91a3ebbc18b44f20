"""Inspection of topics: what names, rows and entries of a stopped store mean.

Rule: it only reads. A row narrows a search down; the batches that are found decide.
Must not know: how rows and entries are read, what the caller does with them.
"""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from kledger.batches.errors import BatchError, CorruptBatch
from kledger.batches.header import BatchHeader, read_header, verify_checksum
from kledger.ledger import Position, UnreadableRow
from kledger.topics.config.topic_config import TopicDefaults, effective_config
from kledger.topics.keys import PartitionKeys, ids_after
from kledger.topics.partition import records
from kledger.topics.partition.offset_index import Interval
from kledger.topics.partition.records import TopicRecord
from kledger.topics.partition_name import PartitionName, partition_of


class Rows(Protocol):
    """The user's rows of a store."""

    def get_row(self, key: bytes) -> bytes | None:
        """Return a row's value."""
        ...

    def scan_rows(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the rows whose keys begin with a prefix, in the order of the keys."""
        ...


class StoredTopics:
    """Partitions as their rows describe them.

    Attributes:
        problems: rows that cannot be read.
    """

    def __init__(self, rows: Rows) -> None:
        self.problems: list[str] = []
        self._rows = rows
        self._topics: dict[UUID, TopicRecord] = {}
        for key, row in rows.scan_rows(records.TOPIC_ROWS.prefix):
            try:
                _, record = records.TOPIC_ROWS.decode(key, row)
            except UnreadableRow as error:
                self.problems.append(str(error))
            else:
                self._topics[record.topic_id] = record

    def has(self, partition: PartitionName) -> bool:
        """Whether there is such a topic; without, it was deleted, or its row is lost."""
        record = self._topics.get(partition.topic_id)
        return record is not None and partition.index < record.partition_count

    def segment_bytes(self, partition: PartitionName) -> int:
        """The segment size of the partition; the server's own default is unknown here."""
        record = self._topics.get(partition.topic_id)
        configs = record.configs if record is not None else {}
        return effective_config(configs, TopicDefaults()).segment_bytes

    def log_start(self, partition: PartitionName) -> int:
        """The offset before which records were deleted, 0 if none was set or it is unreadable."""
        row = self._rows.get_row(_keys(partition).log_start)
        try:
            return records.decode_log_start(row) if row is not None else 0
        except UnreadableRow:
            return 0

    def position_before(
        self, partition: PartitionName, offset: int, ledger_ids: Sequence[int]
    ) -> Position:
        """Return where to begin to read for an offset: at its batch, or shortly before.

        Args:
            partition: the partition.
            offset: the offset.
            ledger_ids: its ledgers, at least one.
        """
        keys = _keys(partition)
        ends = self._ends(keys)
        # A ledger without a row may hold any offset: the search ends at it.
        candidates = (each for each in ledger_ids if not ends.get(each, offset + 1) <= offset)
        ledger_id = next(candidates, ledger_ids[-1])
        entry = 0
        for each in self._intervals(keys, ledger_id):
            if each.first_offset <= offset:
                entry = each.first_entry
        return Position(ledger_id, entry)

    def _ends(self, keys: PartitionKeys) -> dict[int, int]:
        """Return the offset after the last record of each closed ledger."""
        ends = {}
        for key, row in self._rows.scan_rows(keys.ledger_summaries):
            (ledger_id,) = ids_after(key, keys.ledger_summaries)
            try:
                ends[ledger_id] = records.decode_ledger_summary(ledger_id, row).next_offset
            except UnreadableRow:
                continue
        return ends

    def _intervals(self, keys: PartitionKeys, ledger_id: int) -> list[Interval]:
        prefix = keys.ledger_intervals(ledger_id)
        try:
            return [
                records.decode_interval(ids_after(key, prefix)[0], row)
                for key, row in self._rows.scan_rows(prefix)
            ]
        except UnreadableRow:
            return []


class BatchCheck:
    """Checks entries of partitions: whole batches, their own checksum, offsets without a gap."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[Position, int]] = {}

    def __call__(self, managed_ledger: str, position: Position, data: bytes | None) -> str | None:
        """Return what is wrong with an entry; entries of other managed ledgers may be anything."""
        if data is None:
            self._ends.pop(managed_ledger, None)  # the next one has no predecessor to compare with
            return None
        if partition_of(managed_ledger) is None:
            return None
        try:
            header = check_batch(data)
        except BatchError as error:
            self._ends.pop(managed_ledger, None)
            return f"the record batch is damaged: {error}"
        before, expected = self._ends.get(managed_ledger, (position, header.base_offset))
        self._ends[managed_ledger] = position, header.last_offset + 1
        if position.entry_id not in (0, before.entry_id + 1):
            return None  # the entry before could not be read, and was reported
        if header.base_offset != expected:
            return f"the record batch begins at offset {header.base_offset}, expected {expected}"
        return None


def check_batch(data: bytes) -> BatchHeader:
    """Check that an entry is one whole batch.

    Raises:
        BatchError: it is not.
    """
    header = read_header(data)
    if header.size != len(data):
        raise CorruptBatch(f"{header.size} bytes in an entry of {len(data)}")
    verify_checksum(data, header)
    return header


def _keys(partition: PartitionName) -> PartitionKeys:
    return PartitionKeys(partition.topic_id, partition.index)
