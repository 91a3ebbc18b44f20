"""Compaction run: the half of compaction that computes, in a process of its own.

Rule: it gets all batches in the order of the log, then the same batches in the same order again
(`compaction_calls`). It knows the batches alone: what it returns changes nothing until the caller
stores it, and an error ends the run. It loads numpy, so the server's process must not load it.
Must not know: ledgers, positions, the event loop.

Source of what stays: Kafka's log cleaner, which looks at the newest record of each key in the same
way; Pulsar's two phases.
"""

import numpy as np
from pyroaring import BitMap

from kledger.batches.header import read_header
from kledger.batches.pacing import Pause
from kledger.topics.compaction.batch_rebuild import (
    RECORDS_TOGETHER_MIN,
    emptied,
    without_records,
)
from kledger.topics.compaction.compaction_rules import (
    NO_DELETE_HORIZON,
    BatchOrigin,
    BatchOutcome,
    CompactionCounts,
    CompactionRules,
    RebuiltBatch,
)
from kledger.topics.compaction.record_index import RecordIndex

TIMESTAMP_MAX = (1 << 63) - 1
_UNCHANGED = RebuiltBatch(BatchOutcome.UNCHANGED)
_DROPPED = RebuiltBatch(BatchOutcome.DROPPED)
_NONE = BitMap()


class CompactionRun:
    """The state of one run: the index of phase one, and how far phase two is."""

    def __init__(self, rules: CompactionRules) -> None:
        self._rules = rules
        self._index = RecordIndex(rules)
        self._is_indexed = False
        self._next_record = 0  # the number of the first record that phase two has not seen
        self._records_read = 0
        self._records_kept = 0
        self._tombstones_expired = 0
        self._bytes_read = self._bytes_kept = 0
        self._batches_read = self._batches_rebuilt = self._batches_dropped = 0

    @property
    def counts(self) -> CompactionCounts:
        """What phase two has read, kept and dropped; of dropped records what phase one says."""
        index = self._index
        return CompactionCounts(
            records_read=self._records_read,
            records_kept=self._records_kept,
            superseded=index.superseded_count,
            skipped=index.skipped_count,
            keyless=index.keyless_count,
            aborted=index.aborted_count,
            markers=index.marker_count,
            tombstones_expired=self._tombstones_expired,
            bytes_read=self._bytes_read,
            bytes_kept=self._bytes_kept,
            batches_read=self._batches_read,
            batches_rebuilt=self._batches_rebuilt,
            batches_dropped=self._batches_dropped,
            keys_spilled=index.keys_spilled,
        )

    def index_batch(
        self, batch: memoryview, pause: Pause, origin: BatchOrigin | None = None
    ) -> None:
        """Take in a batch in phase one. Raises: see `RecordIndex.add_batch`."""
        assert not self._is_indexed, "phase one has ended"
        self._index.add_batch(batch, pause, origin)

    def flush(self, pause: Pause) -> None:
        """Look at what was taken in, before its data goes. Raises: see `RecordIndex.add_batch`."""
        self._index.flush(pause)

    def end_indexing(self, pause: Pause) -> None:
        """End phase one; may be repeated. Raises: see `RecordIndex.finish`."""
        if not self._is_indexed:
            self._index.finish(pause)
            self._is_indexed = True

    def rebuild_batch(
        self, batch: memoryview, delete_horizon_ms: int, pause: Pause, *, is_last: bool
    ) -> RebuiltBatch:
        """Decide in phase two what becomes of a batch, and do it.

        Args:
            batch: exactly one batch, the next one of those of phase one.
            delete_horizon_ms: what the previous run returned for it; 0 for none.
            pause: see `batches.pacing`.
            is_last: no batch follows; then something must lead a consumer past its offsets.
        """
        assert self._batches_read < self._index.batch_count, "phase one has seen fewer batches"
        header = read_header(batch)
        first, count = self._next_record, header.record_count
        horizon_ms, expired = NO_DELETE_HORIZON, _NONE
        if self._batches_read in self._index.dead_batches:
            dead_count = count
        else:
            self._next_record += count
            horizon_ms, expired = self._decide_tombstones(first, count, delete_horizon_ms)
            dead_count = self._index.dead.range_cardinality(first, first + count) + len(expired)
        self._tombstones_expired += len(expired)
        self._records_read += count
        self._records_kept += count - dead_count
        self._batches_read += 1
        self._bytes_read += len(batch)
        if not dead_count and (count or is_last):
            self._bytes_kept += len(batch)
            return _UNCHANGED._replace(delete_horizon_ms=horizon_ms) if horizon_ms else _UNCHANGED
        if dead_count < count:
            dead = self._index.dead & BitMap(range(first, first + count)) | expired
            rebuilt = without_records(batch, header, _alive(dead, first, count), pause)
        elif is_last:
            rebuilt = emptied(header)
        else:
            self._batches_dropped += 1
            return _DROPPED
        self._batches_rebuilt += 1
        self._bytes_kept += len(rebuilt)
        return RebuiltBatch(BatchOutcome.REBUILT, rebuilt, horizon_ms)

    def _decide_tombstones(
        self, first: int, count: int, delete_horizon_ms: int
    ) -> tuple[int, BitMap]:
        """Return the delete horizon of a batch, and the tombstones whose horizon is reached.

        Cases: 1. all tombstones are dead, or there are none; 2. no run has kept them before; 3. the
        horizon that a run has set is reached, 4. or not.
        """
        tombstones = self._index.tombstones
        if not tombstones.range_cardinality(first, first + count):
            return NO_DELETE_HORIZON, _NONE
        newest = (tombstones & BitMap(range(first, first + count))) - self._index.dead
        if not newest:
            return NO_DELETE_HORIZON, _NONE
        if not delete_horizon_ms:
            rules = self._rules
            return min(rules.now_ms + rules.delete_retention_ms, TIMESTAMP_MAX), _NONE
        if self._rules.now_ms >= delete_horizon_ms:
            return NO_DELETE_HORIZON, newest
        return delete_horizon_ms, _NONE


def _alive(dead: BitMap, first: int, count: int) -> bytearray:
    """Return 0 for each record of a batch that is dead, and 1 for each other one."""
    alive = bytearray(b"\x01") * count
    if count < RECORDS_TOGETHER_MIN:
        for number in dead:
            alive[number - first] = 0
    else:
        np.frombuffer(alive, np.uint8)[np.array(dead.to_array()) - first] = 0
    return alive
