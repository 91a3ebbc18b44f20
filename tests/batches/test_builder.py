"""Building batches: what the header states about the records."""

import pytest

from kledger.batches.builder import (
    NO_PRODUCER,
    BatchProducer,
    NewRecord,
    build_batch,
    build_sparse_batch,
)
from kledger.batches.header import check, read_header, verify_checksum
from kledger.batches.reader import iterate_records
from kledger.batches.record import Record
from tests.batches.words import NOW_MS


def test_first_timestamp_is_the_base_and_the_largest_the_max() -> None:
    times = [NOW_MS, NOW_MS - 5, NOW_MS + 9, NOW_MS]
    header = check(build_batch([NewRecord(b"v", timestamp=each) for each in times]))
    assert (NOW_MS, NOW_MS + 9, 4) == (
        header.base_timestamp, header.max_timestamp, header.record_count
    )  # fmt: skip


def test_log_append_time_sets_bit_and_max() -> None:
    header = check(build_batch([NewRecord(b"v", timestamp=1)], log_append_time_ms=9))
    assert (True, 9, 1) == (header.is_log_append_time, header.max_timestamp, header.base_timestamp)


def test_producer_and_transaction_are_stated() -> None:
    producer = BatchProducer(5, 6, 7, is_transactional=True)
    header = check(build_batch([NewRecord(b"v")], producer=producer, leader_epoch=3))
    assert (5, 6, 7, True, 3) == (
        header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional,
        header.leader_epoch,
    )  # fmt: skip


def test_no_records_is_a_programmer_error() -> None:
    with pytest.raises(AssertionError):
        build_batch([], producer=NO_PRODUCER)


def test_records_of_a_sparse_batch_keep_their_offsets_and_times() -> None:
    records = [
        Record(70, NOW_MS, b"k", b"v", (("h", b"1"),)),
        Record(75, NOW_MS - 5, None, None),
        Record(1_000, NOW_MS + 9, None, b""),
    ]
    built = build_sparse_batch(records)
    header = read_header(built)
    verify_checksum(built, header)
    assert (70, 1_000, NOW_MS + 9) == (
        header.base_offset, header.last_offset, header.max_timestamp
    )  # fmt: skip
    assert records == list(iterate_records(built))
