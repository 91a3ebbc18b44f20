"""Compaction rules: what one run of the compactor is asked to do, and what it says about it.

Rule: plain values, which travel to the compute process and back.
Must not know: how records are read.
"""

from enum import IntEnum
from pickle import PickleBuffer
from typing import NamedTuple, TypeAlias

from kledger.batches.buffers import Buffer
from kledger.topics.compaction.strategy_rule import StrategyRule

NO_DELETE_HORIZON = 0
"""Of a batch without tombstones."""

AbortedOffsets: TypeAlias = tuple[int, int, int]
"""(producer id, first offset, offset of the marker) of an aborted transaction."""


class TooManyRecords(Exception):
    """The memory of a run is too small for what must be known of each record, a bit or two."""


class CompactionRules(NamedTuple):
    """The rules of a run.

    Attributes:
        now_ms: the time of the run.
        delete_retention_ms: how long a tombstone stays after the run that first keeps it.
        aborted: all aborted transactions with records in the input, in any order; of one producer
            they do not overlap.
        memory_bytes_max: limit of the table of keys, with what is known of each record.
        temporary_folder: for keys beyond that; its files have no names, and end with the run.
        strategy: decides which record of a key stays; None: the newest one does.
    """

    now_ms: int
    delete_retention_ms: int
    aborted: tuple[AbortedOffsets, ...]
    memory_bytes_max: int
    temporary_folder: str
    strategy: StrategyRule | None = None


class BatchOrigin(NamedTuple):
    """Where a batch is from, for a strategy.

    Attributes:
        ledger_id, entry_id: the position of its entry, before any compaction.
        first_offset: records before it are deleted, and take no part.
    """

    ledger_id: int
    entry_id: int
    first_offset: int


class BatchOutcome(IntEnum):
    """What becomes of a batch.

    UNCHANGED: it stays as it is.
    REBUILT: replaced by other bytes with the same offsets.
    DROPPED: not replaced.
    """

    UNCHANGED = 0
    REBUILT = 1
    DROPPED = 2


class RebuiltBatch(NamedTuple):
    """What becomes of one batch.

    Attributes:
        outcome: see there.
        data: the new batch if it was rebuilt, else nothing.
        delete_horizon_ms: the time from which on a run removes its tombstones; 0 without any. To be
            stored beside the batch, and given to the next run.
    """

    outcome: BatchOutcome
    data: Buffer = b""
    delete_horizon_ms: int = NO_DELETE_HORIZON

    def __reduce__(self) -> tuple[type["RebuiltBatch"], tuple[object, ...]]:
        """Leave the data out of the pickle where that is possible."""
        outcome, data, delete_horizon_ms = self
        return RebuiltBatch, (outcome, PickleBuffer(data) if data else b"", delete_horizon_ms)


class CompactionCounts(NamedTuple):
    """What a run has read, kept and dropped.

    Attributes:
        records_read: of all batches, with markers.
        records_kept: of these, tombstones too.
        superseded: dropped, because a later record of their key stays; with a strategy also those
            before the log start.
        skipped: dropped, because the strategy has kept an earlier record of their key.
        keyless: dropped, because they have no key.
        aborted: dropped with their transaction.
        markers: control records, all of them dropped.
        tombstones_expired: dropped at their delete horizon.
        bytes_read: of all batches.
        bytes_kept: of the batches that remain.
        batches_read: the number of all batches.
        batches_rebuilt: of those that other bytes replace.
        batches_dropped: of those that nothing replaces.
        keys_spilled: entries of the table that went to the temporary folder.
    """

    records_read: int = 0
    records_kept: int = 0
    superseded: int = 0
    skipped: int = 0
    keyless: int = 0
    aborted: int = 0
    markers: int = 0
    tombstones_expired: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    batches_read: int = 0
    batches_rebuilt: int = 0
    batches_dropped: int = 0
    keys_spilled: int = 0
