"""Which fields of a batch are copied, and which belong to the source's log."""

import pytest

from kledger.batches.builder import BatchProducer, NewRecord, build_batch, build_control_batch
from kledger.batches.compression import Codec
from kledger.batches.errors import CorruptBatch
from kledger.batches.header import check, patch_base_offset, read_header
from kledger.batches.reader import iterate_records
from kledger.batches.record import Record
from kledger.ledger import Buffer, Position
from kledger.native.forwarder.batch_copy import copy_batch
from kledger.native.forwarder.forwarder_state import SourceEntry
from kledger.subscriptions.model import ALL

RECORDS = [
    NewRecord(b"one", b"k", 1_000, (("h", b"1"), ("h", None), ("odd\udcff", b"2")), 3),
    NewRecord(None, b"k", 900),
    NewRecord(b"three", None, 2_000),
]


def stored(data: bytearray, offset: int = 40) -> bytearray:
    """A batch as a log stores it."""
    patch_base_offset(data, offset, 7, batch_length=read_header(data).batch_length)
    return data


def entry(data: Buffer, records: int = ALL) -> SourceEntry:
    return SourceEntry(Position(1, 2), data, records, read_header(data).record_count)


def as_new(record: Record) -> NewRecord:
    return NewRecord(
        record.value, record.key, record.timestamp, record.headers, record.attributes
    )  # fmt: skip


def contents(data: Buffer) -> list[NewRecord]:
    return [as_new(record) for record in iterate_records(data)]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_whole_batch_is_copied_unchanged(codec: Codec) -> None:
    sent = build_batch(RECORDS, codec=codec)
    copy = copy_batch(entry(stored(bytearray(sent))))
    assert sent == copy


def test_the_entry_is_left_alone() -> None:
    data = bytes(stored(build_batch(RECORDS)))
    before = bytes(data)
    assert copy_batch(entry(memoryview(data))) is not None
    assert before == data


def test_producers_and_transactions_are_not_copied() -> None:
    producer = BatchProducer(9, 1, 7, is_transactional=True)
    copy = copy_batch(entry(stored(build_batch(RECORDS, producer=producer))))
    assert copy is not None
    header = check(copy)
    assert (-1, -1, -1, False) == (
        header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional,
    )  # fmt: skip
    assert build_batch(RECORDS) == copy


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_only_unacknowledged_records_are_copied(codec: Codec) -> None:
    copy = copy_batch(entry(stored(build_batch(RECORDS, codec=codec)), 0b110))
    assert copy is not None
    assert (RECORDS[1:], codec) == (contents(copy), check(copy).codec)


def test_acknowledged_batch_is_not_copied() -> None:
    assert copy_batch(entry(stored(build_batch(RECORDS)), 0b1000)) is None


def test_markers_of_transactions_do_not_go() -> None:
    marker = build_control_batch(
        is_commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
    )
    assert copy_batch(entry(stored(marker))) is None


def test_the_time_of_the_append_becomes_the_time_of_every_record() -> None:
    """The target's log may count the records' own times."""
    data = stored(build_batch(RECORDS, log_append_time_ms=5_000))
    copy = copy_batch(entry(data))
    assert copy is not None
    assert not check(copy).is_log_append_time
    assert [5_000] * 3 == [record.timestamp for record in contents(copy)]


def test_entry_that_is_no_batch_raises() -> None:
    with pytest.raises(CorruptBatch):
        copy_batch(SourceEntry(Position(1, 2), b"nothing", ALL, 1))
