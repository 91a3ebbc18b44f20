"""Record index: phase one of compaction, which finds the records that do not stay.

Rule: a record does not stay if a later one has its key (with a strategy: if that does not keep it),
or if it has no key; no record of a batch stays if its transaction was aborted, or if it is a
marker. Batches are numbered in the order of the log, and so are the records of the batches that may
stay: of others the header's count is not worth a number, since a client has written it. Tombstones
are noted; whether they stay depends on the delete horizon of their batch. Everything that is
numbered is checked here, so that phase two meets no damage. Records of several batches are read
together, as `record_heads` does; what it does not read, and what a strategy is to see, is read
record by record.
Must not know: what becomes of a batch.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from kledger.batches.buffers import Buffer
from kledger.batches.compression import Codec, release
from kledger.batches.errors import BatchError, CorruptBatch
from kledger.batches.header import MAGIC, BatchHeader, read_header, verify_checksum
from kledger.batches.pacing import Pause
from kledger.batches.reader import open_body
from kledger.batches.record import rest_of_varint
from kledger.topics.compaction.compaction_rules import (
    AbortedOffsets,
    BatchOrigin,
    CompactionRules,
    TooManyRecords,
)
from kledger.topics.compaction.key_hashes import PADDING, hash_key_list, hash_keys
from kledger.topics.compaction.key_table import KeyTable
from kledger.topics.compaction.record_heads import read_heads, walk_records
from kledger.topics.compaction.strategy_table import StrategyTable

RECORDS_MAX = 1 << 32
"""The numbers of records have 32 bits."""

_RECORDS_PER_STEP = 1024
"""Records that are read one by one between two pauses: about half a millisecond."""
_RECORDS_TOGETHER = 1 << 14
"""Records that are read together: their heads, hashes and what comes between take 3 MiB."""
_BYTES_TOGETHER = 4 << 20
_RECORDS_PER_MEASUREMENT = 1 << 16


class _Body(NamedTuple):
    """The uncompressed records of a batch that were not looked at yet, at least one."""

    base_offset: int
    record_count: int
    size: int
    records: Buffer


class _Part(NamedTuple):
    """Consecutive records of one body.

    Attributes:
        base_offset: of their batch.
        start: of the first one, in all bodies together.
        record_count: how many.
        end: of the body.
        bounds: see `walk_records`; None if it is to be read record by record.
        is_last: no record of the batch follows.
    """

    base_offset: int
    start: int
    record_count: int
    end: int
    bounds: NDArray[np.int64] | None
    is_last: bool


class RecordIndex:
    """What is known of the records of all batches so far.

    Attributes:
        batch_count: the number of the next batch.
        dead_batches: numbers of the batches of which nothing stays, whatever follows.
        record_count: the number of the next record.
        dead: numbers of the records that do not stay; complete after `finish`.
        tombstones: numbers of the records that have a key and no value.
        keyless_count: how many dead records have no key.
        aborted_count, marker_count: how many records the dead batches have.
    """

    def __init__(self, rules: CompactionRules) -> None:
        self.batch_count = 0
        self.dead_batches = BitMap()
        self.record_count = 0
        self.dead = BitMap()
        self.tombstones = BitMap()
        self.keyless_count = 0
        self.aborted_count = 0
        self.marker_count = 0
        self._memory_bytes_max = rules.memory_bytes_max
        self._aborted = _AbortedBatches(rules.aborted)
        folder, memory_bytes_max = rules.temporary_folder, rules.memory_bytes_max
        self._table: KeyTable | StrategyTable
        if rules.strategy is None:
            self._table = KeyTable(self.dead, folder, memory_bytes_max)
        else:
            self._table = StrategyTable(rules.strategy, self.dead, folder, memory_bytes_max)
        self._record_count_measured = 0
        self._next_offset = 0
        self._bodies: list[_Body] = []
        self._bodies_count = self._bodies_bytes = 0

    @property
    def superseded_count(self) -> int:
        """How many records have a later one of their key."""
        return len(self.dead) - self.keyless_count - self.skipped_count

    @property
    def skipped_count(self) -> int:
        """How many records were dropped because a strategy has kept an earlier one."""
        return self._table.skipped_count if isinstance(self._table, StrategyTable) else 0

    @property
    def keys_spilled(self) -> int:
        """How many keys were written to the temporary file."""
        return self._table.spilled_count

    def add_batch(self, batch: memoryview, pause: Pause, origin: BatchOrigin | None = None) -> None:
        """Take in the next batch of the log, exactly one.

        Args:
            batch: with its header; it must not change before `flush`.
            pause: see `batches.pacing`.
            origin: where it is from; only a run with a strategy needs it.

        Raises:
            BatchError: it or one before cannot be read; the message names its base offset.
            TooManyRecords: the memory of the run is too small.
            StrategyFailed: the strategy has raised an error.
            OSError: the temporary file cannot be written.
        """
        header = read_header(batch)
        try:
            self._check(batch, header)
            self._add_records(batch, header, pause, origin)
        except BatchError as error:
            raise _named(error, header.base_offset) from None
        self.batch_count += 1
        self._next_offset = header.last_offset + 1
        if self._bodies_bytes >= _BYTES_TOGETHER or self._bodies_count >= _RECORDS_TOGETHER:
            self.flush(pause)
        self._maybe_measure()

    def flush(self, pause: Pause) -> None:
        """Look at the records of all batches. Raises as `add_batch`."""
        if not self._bodies:
            return
        bodies, self._bodies = self._bodies, []
        self._bodies_count = self._bodies_bytes = 0
        together = b"".join((*(each.records for each in bodies), PADDING))
        octets = np.frombuffer(together, np.uint8)
        parts: list[_Part] = []
        count = 0
        for part in _parts_of(bodies, together, octets):
            if parts and count + part.record_count > _RECORDS_TOGETHER:
                self._add_parts(together, octets, parts, pause)
                parts, count = [], 0
            parts.append(part)
            count += part.record_count
        self._add_parts(together, octets, parts, pause)

    def finish(self, pause: Pause) -> None:
        """Complete `dead` after a `flush`; no batches follow. Raises StrategyFailed, OSError."""
        assert not self._bodies, "they are not looked at"
        self._table.finish(pause)

    def _check(self, batch: memoryview, header: BatchHeader) -> None:
        if header.magic != MAGIC:
            raise CorruptBatch(f"magic {header.magic}, expected {MAGIC}")
        if header.size != len(batch):
            raise CorruptBatch(f"size {header.size} in the batch, expected {len(batch)}")
        verify_checksum(batch, header)
        if header.base_offset < self._next_offset:
            raise CorruptBatch(f"it is out of order, expected {self._next_offset} or above")
        if header.record_count < 0 or header.last_offset_delta < 0:
            raise CorruptBatch(
                f"record count {header.record_count}, last offset delta"
                f" {header.last_offset_delta}, expected 0 or above"
            )

    def _add_records(
        self, batch: memoryview, header: BatchHeader, pause: Pause, origin: BatchOrigin | None
    ) -> None:
        count = header.record_count
        if not count:
            return
        if header.is_control:
            self.dead_batches.add(self.batch_count)
            self.marker_count += count
        elif header.is_transactional and self._aborted.contain(header):
            self.dead_batches.add(self.batch_count)
            self.aborted_count += count
        else:
            opened = open_body(batch, header, pause=pause)
            if isinstance(self._table, StrategyTable):
                assert origin is not None, "a strategy is shown where a record is from"
                body = bytes(opened)  # a third faster to index than any view
                release(opened)
                first = self.record_count
                _check_end(self._add_one_by_one(body, 0, count, pause), body)
                self._table.add_batch(header, body, origin, first, pause)
            else:
                if header.codec != Codec.NONE:
                    # The memory into which a batch was decompressed may be much larger.
                    body = bytes(opened)
                    release(opened)
                    opened = body
                self._bodies.append(_Body(header.base_offset, count, len(opened), opened))
                self._bodies_count += count
                self._bodies_bytes += len(opened)

    def _add_parts(
        self, together: bytes, octets: NDArray[np.uint8], parts: Sequence[_Part], pause: Pause
    ) -> None:
        """Take in the records of some parts, together if that is possible."""
        bounds = _bounds_of(parts)
        heads = None if bounds is None else read_heads(octets, bounds)
        if bounds is None or heads is None:
            for part in parts:
                try:
                    body = together[part.start : part.end]
                    end = self._add_one_by_one(body, 0, part.record_count, pause)
                    if part.is_last:
                        _check_end(end, body)
                except BatchError as error:
                    raise _named(error, part.base_offset) from None
            return
        count = len(bounds) - 1
        self._check_count(count)
        first = self.record_count
        self.record_count += count
        numbers = np.arange(first, first + count, dtype=np.uint32)
        if len(heads.keyless):
            self.keyless_count += len(heads.keyless)
            self.dead.update(BitMap(numbers[heads.keyless]))
            numbers = np.delete(numbers, heads.keyless)
        if len(heads.tombstones):
            self.tombstones.update(BitMap((first + heads.tombstones).astype(np.uint32)))
        assert isinstance(self._table, KeyTable), "a strategy sees records one by one"
        self._table.add(hash_keys(together, heads.key_starts, heads.key_sizes), numbers)
        self._maybe_measure()
        pause()

    def _add_one_by_one(self, body: bytes, position: int, count: int, pause: Pause) -> int:
        """Take in records as `read_keys` reads them; return the position after the last one."""
        while count:
            step = min(count, _RECORDS_PER_STEP)
            self._check_count(step)
            keys, keyless, tombstones, position = read_keys(body, position, step)
            first = self.record_count
            if keyless:
                self.keyless_count += len(keyless)
                self.dead.update([first + index for index in keyless])
            if tombstones:
                self.tombstones.update([first + index for index in tombstones])
            self.record_count += step
            if isinstance(self._table, KeyTable):
                numbers = np.delete(np.arange(first, first + step, dtype=np.uint32), keyless)
                self._table.add(hash_key_list(keys), numbers)
            count -= step
            pause()
        return position

    def _check_count(self, count: int) -> None:
        if self.record_count + count > RECORDS_MAX:
            raise TooManyRecords(f"more than {RECORDS_MAX} records")

    def _maybe_measure(self) -> None:
        if self.record_count - self._record_count_measured >= _RECORDS_PER_MEASUREMENT:
            self._measure()

    def _measure(self) -> None:
        """Leave to the table what the bitmaps do not need: at least half of the memory.

        `dead` takes a bit for each record at most.
        """
        self._record_count_measured = self.record_count
        needed = self.record_count // 8
        needed += sum(map(_memory_bytes, (self.tombstones, self.dead_batches)))
        if needed > self._memory_bytes_max // 2:
            raise TooManyRecords(
                f"{self.record_count} records need {needed} bytes beside their keys, expected at"
                f" most half of {self._memory_bytes_max}"
            )
        self._table.memory_bytes_max = self._memory_bytes_max - needed


class _AbortedBatches:
    """Finds out which transactional batches were aborted."""

    def __init__(self, aborted: Sequence[AbortedOffsets]) -> None:
        self._firsts: defaultdict[int, list[int]] = defaultdict(list)
        self._lasts: defaultdict[int, list[int]] = defaultdict(list)
        for producer_id, first_offset, last_offset in sorted(aborted):
            self._firsts[producer_id].append(first_offset)
            self._lasts[producer_id].append(last_offset)

    def contain(self, header: BatchHeader) -> bool:
        """Return whether a transactional batch lies in an aborted transaction of its producer."""
        firsts = self._firsts.get(header.producer_id, ())
        index = bisect_right(firsts, header.base_offset) - 1
        return index >= 0 and header.base_offset <= self._lasts[header.producer_id][index]


def _parts_of(
    bodies: Sequence[_Body], together: bytes, octets: NDArray[np.uint8]
) -> Iterator[_Part]:
    """Divide bodies that follow each other into parts of not too many records."""
    start = 0
    for body in bodies:
        end = start + body.size
        left = body.record_count
        while left:
            count = min(left, _RECORDS_TOGETHER)
            left -= count
            bounds = walk_records(together, octets, start, count)
            is_whole = bounds is not None and (bounds[-1] < end if left else bounds[-1] == end)
            if bounds is None or not is_whole:
                yield _Part(body.base_offset, start, count + left, end, None, is_last=True)
                break
            yield _Part(body.base_offset, start, count, end, bounds, is_last=not left)
            start = int(bounds[-1])
        start = end


def _bounds_of(parts: Sequence[_Part]) -> NDArray[np.int64] | None:
    """Return the bounds of the records of parts that follow each other."""
    found: list[NDArray[np.int64]] = []
    for part in parts:
        if part.bounds is None:
            return None
        found.append(part.bounds[:-1] if part is not parts[-1] else part.bounds)
    return np.concatenate(found)


def _check_end(position: int, body: bytes) -> None:
    if position != len(body):
        raise CorruptBatch(f"{len(body) - position} bytes after the last record")


def _named(error: BatchError, base_offset: int) -> BatchError:
    return type(error)(f"batch at offset {base_offset}: {error}")


def read_keys(  # noqa: PLR0912 - varints are read in place
    body: bytes, position: int, count: int
) -> tuple[list[bytes], list[int], list[int], int]:
    """Read the keys of consecutive records.

    Most time of phase one is spent here: varints of one or two bytes, nearly all, are read in
    place, and times and offsets are skipped.

    Args:
        body: the uncompressed records of a batch.
        position: start of the first record.
        count: how many to read.

    Returns:
        The keys that are not null, in order; the indices of records whose key is null; the indices
        of other records whose value is null; the position after the last record.

    Raises:
        CorruptBatch: a record does not fit into the body, or its key not into the record.
    """
    keys: list[bytes] = []
    keyless: list[int] = []
    tombstones: list[int] = []
    append = keys.append
    try:
        for index in range(count):
            start = position
            # A varint is twice its value; an odd one stands for a negative number.
            size = body[position]
            position += 1
            if size > 0x7F:
                high = body[position]
                if high > 0x7F:
                    size, position = rest_of_varint(body, position, size)
                else:
                    size = size & 0x7F | high << 7
                    position += 1
            end = position + (size >> 1)
            position += 1  # attributes
            while body[position] > 0x7F:  # timestamp delta
                position += 1
            position += 1
            while body[position] > 0x7F:  # offset delta
                position += 1
            key_size = body[position + 1]
            position += 2
            if key_size > 0x7F:
                key_size, position = rest_of_varint(body, position, key_size)
            if key_size & 1:
                keyless.append(index)
            else:
                key_end = position + (key_size >> 1)
                append(body[position:key_end])
                position = key_end
                if body[position] & 1:
                    tombstones.append(index)
            if position >= end or size & 1:
                raise CorruptBatch(f"record at byte {start} ends before its value")
            position = end
    except IndexError:
        raise CorruptBatch(f"record at byte {start} runs past the end of the records") from None
    if position > len(body):
        raise CorruptBatch(f"record at byte {start} runs past the end of the records")
    return keys, keyless, tombstones, position


def _memory_bytes(bitmap: BitMap) -> int:
    found = bitmap.get_statistics()
    return (
        found["n_bytes_array_containers"]
        + found["n_bytes_run_containers"]
        + found["n_bytes_bitset_containers"]
    )
