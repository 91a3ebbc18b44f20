"""The index refuses what cannot be read, and says which batch it is."""

import struct

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.compression import OUTPUT_SIZE_MAX, Codec, compress
from kledger.batches.errors import (
    BatchError,
    CorruptBatch,
    DecompressedTooLarge,
    UnsupportedCompression,
)
from kledger.batches.header import BATCH_OVERHEAD, refresh_checksum
from kledger.batches.pacing import no_pause
from kledger.topics.compaction.compaction_rules import TooManyRecords
from kledger.topics.compaction.record_index import RecordIndex
from tests.topics.compaction.words import log_batch, rules

BATCH = log_batch(40, ("a", "1"), ("b", "2"))


def add(*batches: bytes | bytearray, memory_bytes_max: int = 64 << 20) -> RecordIndex:
    index = RecordIndex(rules(memory_bytes_max=memory_bytes_max))
    for each in batches:
        index.add_batch(memoryview(each), no_pause)
    index.flush(no_pause)
    index.finish(no_pause)
    return index


def patched(layout: str, position: int, value: int) -> bytearray:
    """Change a field of the batch, and make its checksum right again."""
    batch = bytearray(BATCH)
    struct.pack_into(layout, batch, position, value)
    refresh_checksum(batch)
    return batch


def with_body(body: bytes, *, codec: int = 0, count: int = 1) -> bytearray:
    batch = bytearray(BATCH[:BATCH_OVERHEAD]) + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 57, count)
    refresh_checksum(batch)
    return batch


def damaged(position: int) -> bytearray:
    batch = bytearray(BATCH)
    batch[position] ^= 1
    return batch


#                 size  attributes, times, offset, key size, key, value size, headers
RECORD = bytes([0x0E, 0, 0, 0, 0x02, ord("k"), 0x00, 0])


@pytest.mark.parametrize(
    ("batch", "kind", "message"),
    [
        (damaged(70), CorruptBatch, "checksum"),
        (damaged(19), CorruptBatch, "checksum"),
        (patched(">b", 16, 1), CorruptBatch, "magic 1, expected 2"),
        (patched(">i", 8, 50), CorruptBatch, "size 62 in the batch"),
        (BATCH + b"x", CorruptBatch, "size"),
        (patched(">i", 57, -1), CorruptBatch, "record count -1"),
        (patched(">i", 23, -1), CorruptBatch, "last offset delta -1"),
        (patched(">i", 57, 3), CorruptBatch, "runs past the end"),
        (patched(">i", 57, 1), CorruptBatch, "bytes after the last record"),
        (patched(">h", 21, 5), UnsupportedCompression, "codec 5"),
        (patched(">h", 21, 4), CorruptBatch, "zstd"),
        (with_body(RECORD[:-1]), CorruptBatch, "runs past the end"),
        (with_body(b"\x10" + RECORD[1:]), CorruptBatch, "runs past the end"),
        (with_body(b"\x0d" + RECORD[1:]), CorruptBatch, "ends before its value"),
        (with_body(b"\x0a" + RECORD[1:]), CorruptBatch, "ends before its value"),
        (with_body(RECORD[:4] + b"\x40" + RECORD[5:]), CorruptBatch, "runs past the end"),
        (with_body(RECORD[:4] + b"\xff" * 20), CorruptBatch, "ends before|longer|past the end"),
        (with_body(b"\xff" * 30), CorruptBatch, "longer than 10 bytes"),
        (with_body(b""), CorruptBatch, "runs past the end"),
    ],
)
def test_what_cannot_be_read_names_its_batch(
    batch: bytes, kind: type[BatchError], message: str
) -> None:
    with pytest.raises(kind, match=f"batch at offset 40: .*({message})"):
        add(batch)


def test_a_record_that_is_whole_is_read() -> None:
    """The records above are this one with one mistake."""
    assert 1 == add(with_body(RECORD)).record_count


def test_a_batch_without_a_whole_header_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="batch of 60 bytes"):
        add(BATCH[:60])


def test_batches_out_of_order_are_refused() -> None:
    """Which record is the newest depends on it."""
    with pytest.raises(CorruptBatch, match=r"batch at offset 40: .* expected 42 or above"):
        add(BATCH, BATCH)


def test_a_bomb_is_refused() -> None:
    bomb = compress(Codec.ZSTD, bytes(OUTPUT_SIZE_MAX + 1))
    with pytest.raises(DecompressedTooLarge, match="batch at offset 40"):
        add(with_body(bomb, codec=Codec.ZSTD))


def test_too_many_records_for_the_memory_are_refused() -> None:
    """A bit or two of each record must be known, whatever goes to the file."""
    records = [NewRecord(b"", key=b"k")] * 70_000
    with pytest.raises(TooManyRecords, match="65536 records need"):
        add(build_batch(records), memory_bytes_max=1000)


def test_memory_is_measured_again_and_again() -> None:
    """Each batch needs 8 KiB for its dead records; half of the memory is for those."""
    records = [NewRecord(b"", key=b"k")] * 65_536
    batches = [build_batch(records, base_offset=number * 65_536) for number in range(3)]
    assert 131_072 == add(*batches[:2], memory_bytes_max=40_000).record_count
    with pytest.raises(TooManyRecords, match="196608 records need"):
        add(*batches, memory_bytes_max=40_000)


def test_the_count_of_an_aborted_batch_takes_no_memory() -> None:
    """Nobody has checked the count that a client claims for records that it compressed."""
    claimed = patched(">i", 57, (1 << 31) - 1)
    struct.pack_into(">h", claimed, 21, 0x10)
    struct.pack_into(">q", claimed, 43, 7)
    refresh_checksum(claimed)
    index = RecordIndex(rules(aborted=[(7, 40, 100)]))
    index.add_batch(memoryview(claimed), no_pause)
    assert (0, 1, [0]) == (index.record_count, index.batch_count, list(index.dead_batches))
