"""Admission: what a topic makes of a batch before it is appended."""

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.errors import BatchTooLarge, InvalidBatch, TimestampNotAllowed
from kledger.batches.header import (
    BatchHeader,
    check,
    read_header,
    set_log_append_time,
    set_max_timestamp,
    verify_checksum,
)
from kledger.topics.config.topic_config import TopicConfig, TopicDefaults, effective_config
from kledger.topics.partition import admission_plan
from kledger.topics.partition.record_walk import WalkNeeded
from tests.batches.words import NOW_MS, batch
from tests.topics.words import walked_here

HOUR_MS = 3_600_000


def config(**texts: str) -> TopicConfig:
    named = {name.replace("_", "."): text for name, text in texts.items()}
    return effective_config(named, TopicDefaults())


def admit(batch: memoryview, config: TopicConfig, now_ms: int) -> BatchHeader:
    """Admit a batch, with a walk over its records where that is asked for."""
    before = bytes(batch)
    try:
        return admission_plan.admit(batch, config, now_ms)
    except WalkNeeded as needed:
        assert before == bytes(batch)
        return admission_plan.admit(batch, config, now_ms, walked_here(needed.walk))


def test_untouched_where_nothing_has_to_change() -> None:
    data = batch("a", codec=4)
    before = bytes(data)
    assert check(before) == admit(memoryview(data), config(), NOW_MS)
    assert before == bytes(data)


@pytest.mark.parametrize(
    ("shift", "is_admitted"), [(HOUR_MS, True), (HOUR_MS + 1, False), (-(10**12), True)]
)
def test_time_window_is_inclusive(shift: int, is_admitted: bool) -> None:
    data = memoryview(batch("a", timestamp=NOW_MS + shift))
    if is_admitted:
        admit(data, config(), NOW_MS)
    else:
        with pytest.raises(TimestampNotAllowed, match=f"to {NOW_MS + HOUR_MS}"):
            admit(data, config(), NOW_MS)


def test_records_out_of_time_are_named() -> None:
    times = [NOW_MS, NOW_MS + 2 * HOUR_MS, NOW_MS]
    data = build_batch([NewRecord(b"v", timestamp=time) for time in times], codec=1)
    with pytest.raises(TimestampNotAllowed) as caught:
        admit(memoryview(data), config(), NOW_MS)
    assert [1] == [index for index, _ in caught.value.record_errors]
    data = batch("a", timestamp=NOW_MS - 2)
    with pytest.raises(TimestampNotAllowed) as caught:
        admit(memoryview(data), config(message_timestamp_before_max_ms="1"), NOW_MS)
    assert [0] == [index for index, _ in caught.value.record_errors]


def test_header_that_claims_too_new_a_time_is_put_right() -> None:
    data = memoryview(batch("a", "b", codec=1))
    set_max_timestamp(data, NOW_MS + 2 * HOUR_MS)
    assert NOW_MS + 1 == admit(data, config(), NOW_MS).max_timestamp
    assert NOW_MS + 1 == check(data).max_timestamp


def test_timestamp_type_of_the_producer_is_the_fault_of_every_record() -> None:
    data = memoryview(batch("a", "b"))
    set_log_append_time(data, NOW_MS)
    with pytest.raises(TimestampNotAllowed) as caught:
        admit(data, config(message_timestamp_type="LogAppendTime"), NOW_MS)
    assert [0, 1] == [index for index, _ in caught.value.record_errors]


def test_header_returned_is_the_header_written() -> None:
    for settings in ({}, {"message_timestamp_type": "LogAppendTime"}):
        data = memoryview(batch("a", "b", timestamp=NOW_MS - 5))
        header = admit(data, config(**settings), NOW_MS)
        stored = read_header(data)
        verify_checksum(data, stored)
        assert header._replace(crc=0) == stored._replace(crc=0)


def test_limits() -> None:
    with pytest.raises(BatchTooLarge):
        admit(memoryview(batch("a")), config(max_message_bytes="50"), NOW_MS)


def test_trailing_bytes_do_not_get_under_the_checksum() -> None:
    data = memoryview(bytearray(batch("a") + b"\0" * 9))
    header = admit(data, config(message_timestamp_type="LogAppendTime"), NOW_MS)
    verify_checksum(data[: header.size], read_header(data))


def test_walk_under_another_configuration_does_not_count() -> None:
    """The topic became compacted during the walk."""
    data = memoryview(build_batch([NewRecord(b"v", timestamp=NOW_MS)]))
    loose = config(message_timestamp_before_max_ms="1")
    with pytest.raises(WalkNeeded) as needed:
        admission_plan.admit(data, loose, NOW_MS + 100)
    compacted = config(cleanup_policy="compact")
    with pytest.raises(WalkNeeded) as again:
        admission_plan.admit(data, compacted, NOW_MS, walked_here(needed.value.walk))
    with pytest.raises(InvalidBatch, match=r"message without key \(1 records\)"):
        admission_plan.admit(data, compacted, NOW_MS, walked_here(again.value.walk))
