"""Checks that need the records."""

import struct
import tracemalloc

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.errors import CorruptBatch, InvalidBatch, TimestampNotAllowed
from kledger.batches.header import BATCH_OVERHEAD, check, refresh_checksum, set_max_timestamp
from kledger.batches.pacing import STEPS_PER_PAUSE
from kledger.batches.validation import RECORD_ERRORS_MAX, RecordRules, check_records
from tests.batches.words import NOW_MS, batch


def checked(data: bytearray, rules: RecordRules = RecordRules()) -> int:  # noqa: B008 - a constant
    return check_records(data, check(data), rules)


@pytest.mark.parametrize("codec", range(5))
def test_true_max_timestamp_is_found_whatever_the_header_says(codec: int) -> None:
    data = batch("a", "b", "c", codec=codec)
    set_max_timestamp(data, 1)
    assert NOW_MS + 2 == checked(data)


def test_attributes_of_a_record_mean_nothing() -> None:
    rules = RecordRules(is_key_required=True, timestamp_min=NOW_MS)
    checked(build_batch([NewRecord(b"v", b"k", NOW_MS, attributes=0x7F)], codec=2), rules)


def test_missing_keys_are_named_one_by_one() -> None:
    keyless = [NewRecord(b"v"), NewRecord(b"v", key=b"k"), NewRecord(b"v")]
    data = build_batch(keyless, codec=4)
    checked(data)
    with pytest.raises(InvalidBatch) as caught:
        checked(data, RecordRules(is_key_required=True))
    assert [0, 2] == [index for index, _ in caught.value.record_errors]
    many = build_batch([NewRecord(b"v")] * 500)
    with pytest.raises(InvalidBatch, match=r"500 records") as caught:
        checked(many, RecordRules(is_key_required=True))
    assert RECORD_ERRORS_MAX == len(caught.value.record_errors)


def test_one_bad_time_in_the_middle_is_found() -> None:
    times = [NOW_MS, NOW_MS - 1000, NOW_MS]
    data = build_batch([NewRecord(b"v", timestamp=each) for each in times])
    checked(data, RecordRules(timestamp_min=NOW_MS - 1000, timestamp_max=NOW_MS))
    with pytest.raises(TimestampNotAllowed) as caught:
        checked(data, RecordRules(timestamp_min=NOW_MS - 999))
    assert [1] == [index for index, _ in caught.value.record_errors]
    checked(build_batch([NewRecord(b"v", timestamp=-1)]), RecordRules(timestamp_min=0))


def test_offset_deltas_must_count_up() -> None:
    data = batch("a", "b")
    second = BATCH_OVERHEAD + 1 + data[BATCH_OVERHEAD] // 2
    assert 2 == data[second + 3]  # zigzag of 1
    data[second + 3] = 4
    refresh_checksum(data)
    with pytest.raises(InvalidBatch, match="offset delta 2, expected 1"):
        checked(data)


def test_wrong_count_and_unreadable_records_are_invalid() -> None:
    data = batch("a", "b", codec=1)
    struct.pack_into(">i", data, 57, 3)
    struct.pack_into(">i", data, 23, 2)
    refresh_checksum(data)
    with pytest.raises(InvalidBatch, match="records end after 2, expected 3"):
        checked(data)


def test_damaged_block_and_bomb_are_corrupt() -> None:
    data = batch("a" * 1000, codec=4)
    data[70:74] = b"\xff\xff\xff\xff"
    refresh_checksum(data)
    with pytest.raises(CorruptBatch):
        checked(data)
    with pytest.raises(CorruptBatch):
        checked(batch("a" * 1000, codec=1), RecordRules(size_max=500))


def test_records_at_fault_beyond_the_hundredth_are_counted_and_take_no_memory() -> None:
    count = 20_000
    data = build_batch([NewRecord(b"v", timestamp=NOW_MS + each) for each in range(count)])
    header = check(data)
    rules = RecordRules(is_key_required=False, timestamp_max=NOW_MS - 1)
    tracemalloc.start()
    with pytest.raises(TimestampNotAllowed, match=f"{count} records") as caught:
        check_records(data, header, rules)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [*range(RECORD_ERRORS_MAX)] == [index for index, _ in caught.value.record_errors]
    assert peak < 100_000


def test_a_record_that_is_all_headers_takes_no_memory_and_pauses_the_walk() -> None:
    """Two bytes make a header: a megabyte of them were half a million strings and tuples."""
    headers = [("", None)] * 50_000
    data = build_batch([NewRecord(b"v", headers=headers)])
    header = check(data)
    pauses: list[int] = []
    tracemalloc.start()
    check_records(data, header, RecordRules(), lambda: pauses.append(1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert len(pauses) >= 50_000 // STEPS_PER_PAUSE - 1


@pytest.mark.parametrize("codec", range(5))
def test_walk_pauses_every_so_many_records(codec: int) -> None:
    data = build_batch([NewRecord(b"v")] * (10 * STEPS_PER_PAUSE), codec=codec)
    pauses: list[int] = []
    check_records(data, check(data), RecordRules(), lambda: pauses.append(1))
    assert 9 == len(pauses)
