"""The header: every rule that needs no records, and the patches."""

import struct

import pytest

from kledger.batches.checksum import crc32c
from kledger.batches.errors import (
    BatchError,
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    UnsupportedCompression,
)
from kledger.batches.header import (
    BATCH_OVERHEAD,
    FLAGS_AT,
    HEADER_STRUCT,
    RECORD_SIZE_MIN,
    TRANSACTIONAL_BIT,
    check,
    clear_timestamp_type,
    patch_base_offset,
    read_base_offset,
    read_header,
    read_record_count,
    refresh_checksum,
    set_log_append_time,
    set_max_timestamp,
    set_producer,
    verify_checksum,
)
from kledger.batches.reader import iterate_times
from tests.batches.words import NOW_MS, batch

FIELDS = {  # name: (offset, format)
    "base_offset": (0, ">q"), "length": (8, ">i"), "magic": (16, ">b"), "crc": (17, ">I"),
    "attributes": (21, ">h"), "delta": (23, ">i"), "sequence": (53, ">i"), "count": (57, ">i"),
}  # fmt: skip


def changed(base: bytearray, *, redo_crc: bool = True, **fields: int) -> bytearray:
    out = bytearray(base)
    for name, value in fields.items():
        offset, form = FIELDS[name]
        struct.pack_into(form, out, offset, value)
    if redo_crc:
        refresh_checksum(out)
    return out


def test_layout_is_61_bytes() -> None:
    assert BATCH_OVERHEAD == HEADER_STRUCT.size


def test_record_count_is_read_alone() -> None:
    data = batch("a", "b", "c")
    assert read_header(data).record_count == read_record_count(memoryview(data)) == 3
    with pytest.raises(CorruptBatch):
        read_record_count(data[:60])


def test_a_header_is_read_where_it_starts_and_not_past_the_end() -> None:
    one, other = batch("a"), batch("a", "b")
    assert 2 == read_header(one + other, len(one)).record_count
    with pytest.raises(CorruptBatch, match="batch of 60 bytes, expected at least 61"):
        read_header(one + other[:60], len(one))


def test_base_offset_is_read_alone() -> None:
    data = batch("a", "b")
    patch_base_offset(data, 1 << 40, 0, batch_length=read_header(data).batch_length)
    assert read_header(data).base_offset == read_base_offset(memoryview(data)) == 1 << 40
    with pytest.raises(CorruptBatch):
        read_base_offset(data[:60])


def test_the_byte_with_the_flags() -> None:
    plain, marked = batch("a", codec=4), batch("a", codec=4, producer=1, transactional=True)
    assert (4, 4 | TRANSACTIONAL_BIT) == (plain[FLAGS_AT], marked[FLAGS_AT])


def test_check_returns_the_fields() -> None:
    header = check(batch("a", "b", "c", producer=9, epoch=2, sequence=40, codec=1))
    assert (0, 2, 2, NOW_MS, NOW_MS + 2) == (
        header.base_offset, header.magic, header.last_offset_delta, header.base_timestamp,
        header.max_timestamp,
    )  # fmt: skip
    assert (9, 2, 40, 3, 1) == (
        header.producer_id, header.producer_epoch, header.base_sequence, header.record_count,
        header.codec,
    )  # fmt: skip
    assert (2, False, False, False) == (
        header.last_offset,
        header.is_control,
        header.is_transactional,
        header.is_log_append_time,
    )


WHOLE = batch("a", "b")
WITH_PRODUCER = batch("a", producer=9, sequence=5)
FIRST_PRODUCER = batch("a", producer=0, sequence=5)
TOO_MANY = (len(WHOLE) - BATCH_OVERHEAD) // RECORD_SIZE_MIN + 1
REJECTED: list[tuple[str, bytes | bytearray, type[BatchError]]] = [
    ("no bytes", b"", InvalidBatch),
    ("only a few bytes", WHOLE[:16], InvalidBatch),
    ("cut at the end", WHOLE[:-1], InvalidBatch),
    ("length past the field", changed(WHOLE, redo_crc=False, length=len(WHOLE)), InvalidBatch),
    ("length below the minimum", changed(WHOLE, redo_crc=False, length=13), CorruptBatch),
    ("negative length", changed(WHOLE, redo_crc=False, length=-5), CorruptBatch),
    ("length of an old record", changed(WHOLE, redo_crc=False, length=20)[:32], CorruptBatch),
    ("wrong checksum", changed(WHOLE, redo_crc=False, crc=1), CorruptBatch),
    ("magic 0", changed(WHOLE, magic=0), InvalidBatch),
    ("magic 1", changed(WHOLE, magic=1), InvalidBatch),
    ("magic 3", changed(WHOLE, magic=3), CorruptBatch),
    ("magic -1", changed(WHOLE, magic=-1), CorruptBatch),
    ("base offset 7", changed(WHOLE, base_offset=7), InvalidBatch),
    ("control bit", changed(WHOLE, attributes=0x20), InvalidBatch),
    ("count 0", changed(WHOLE, count=0, delta=-1), InvalidBatch),
    ("count -1", changed(WHOLE, count=-1, delta=-2), InvalidBatch),
    ("count is not delta + 1", changed(WHOLE, delta=5), InvalidBatch),
    ("count beyond the bytes", changed(WHOLE, count=1 << 20, delta=(1 << 20) - 1), InvalidBatch),
    ("count one beyond the bytes", changed(WHOLE, count=TOO_MANY, delta=TOO_MANY - 1),
     InvalidBatch),
    ("codec 5", changed(WHOLE, attributes=5), UnsupportedCompression),
    ("codec 7", changed(WHOLE, attributes=7), UnsupportedCompression),
    ("producer without sequence", changed(WITH_PRODUCER, sequence=-1), InvalidBatch),
    ("producer 0 without sequence", changed(FIRST_PRODUCER, sequence=-1), InvalidBatch),
    ("transaction without producer", changed(WHOLE, attributes=0x10), InvalidBatch),
    ("two batches", WHOLE + WHOLE, InvalidBatch),
    ("length below the minimum, cut", changed(WHOLE, redo_crc=False, length=9)[:12], CorruptBatch),
    ("past the field with magic 16", changed(WHOLE[:40], redo_crc=False, length=99, magic=16),
     CorruptBatch),
    ("past the field with magic 1", changed(WHOLE[:40], redo_crc=False, length=99, magic=1),
     InvalidBatch),
    ("a batch and the start of nonsense", WHOLE + bytes(12), CorruptBatch),
    ("a batch and a small length", WHOLE + bytes(40), CorruptBatch),
]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "error"), [row[1:] for row in REJECTED], ids=[r[0] for r in REJECTED]
)
def test_check_rejects(data: bytes, error: type[BatchError]) -> None:
    with pytest.raises(error) as caught:
        check(data)
    assert error is type(caught.value)


def test_check_size_limit_is_inclusive() -> None:
    assert check(WHOLE, len(WHOLE)).size == len(WHOLE)
    with pytest.raises(BatchTooLarge, match=f"{len(WHOLE)} bytes, expected at most"):
        check(WHOLE, len(WHOLE) - 1)


def test_check_tolerates_trailing_bytes_without_a_batch() -> None:
    assert len(WHOLE) == check(WHOLE + b"\0" * 11).size
    assert len(WHOLE) == check(WHOLE + WHOLE[:-1]).size


def test_check_takes_any_buffer_at_every_cut_and_never_crashes() -> None:
    whole = bytes(batch("a", "bb", codec=4, producer=1))
    for size in range(len(whole)):
        with pytest.raises(BatchError):
            check(memoryview(whole)[:size])
    assert check(whole) == check(bytearray(whole)) == check(memoryview(whole))


def test_every_flipped_bit_under_the_checksum_is_found() -> None:
    whole = batch("hello", producer=3)
    for position in range(21, len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        with pytest.raises(BatchError):
            check(damaged)


def test_patch_base_offset_keeps_the_checksum() -> None:
    data = batch("a", "b")
    patch_base_offset(memoryview(data), 2**40, 7, batch_length=read_header(data).batch_length)
    header = read_header(data)
    assert (2**40, 7, 2**40 + 1, len(data)) == (
        header.base_offset, header.leader_epoch, header.last_offset, header.size
    )  # fmt: skip
    verify_checksum(data, header)


def test_log_append_time_holds_for_every_record() -> None:
    data = batch("a", "b", codec=2)
    set_log_append_time(data, 77)
    header = check(data)
    assert header.is_log_append_time
    assert [77, 77] == [record.timestamp for record in iterate_times(data)]


def test_clear_timestamp_type_gives_the_records_their_times_back() -> None:
    data = batch("a", "b")
    whole = bytes(data)
    set_log_append_time(data, NOW_MS + 1)
    clear_timestamp_type(data)
    check(data)
    assert whole == bytes(data)


def test_set_max_timestamp_redoes_the_checksum() -> None:
    data = batch("a")
    set_max_timestamp(data, 5)
    assert 5 == check(data).max_timestamp


def test_set_producer_takes_a_batch_out_of_its_transaction() -> None:
    data = batch("a", "b", producer=9, epoch=1, sequence=7, transactional=True)
    set_producer(data, 1 << 40, 2, 41)
    header = check(data)
    assert (1 << 40, 2, 41) == (header.producer_id, header.producer_epoch, header.base_sequence)
    assert not header.is_transactional
    set_producer(data, -1, -1, -1)
    plain = batch("a", "b")
    assert bytes(plain) == bytes(data)


def test_verify_checksum_says_got_and_expected() -> None:
    data = changed(batch("a"), redo_crc=False, crc=0xDEAD)
    expected = crc32c(memoryview(data)[21:])
    with pytest.raises(CorruptBatch, match=f"0x0000dead in the batch, expected {expected:#010x}"):
        verify_checksum(data, read_header(data))
