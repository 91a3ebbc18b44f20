"""Reading and building against each other, and against two clients in both directions."""

import struct
from contextlib import suppress
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder

from kledger.batches.builder import BatchProducer, NewRecord, build_batch, build_control_batch
from kledger.batches.errors import CorruptBatch
from kledger.batches.header import (
    BATCH_OVERHEAD,
    check,
    patch_base_offset,
    read_header,
    refresh_checksum,
)
from kledger.batches.reader import (
    KeyValue,
    RecordTime,
    iterate_batches,
    iterate_fields,
    iterate_key_values,
    iterate_parts,
    iterate_records,
    iterate_times,
    open_body,
)
from kledger.batches.record import ATTRIBUTES_MAX, Record, read_headers, read_rest
from tests.batches.words import NOW_MS, batch

TIMES = st.integers(0, 2**42)
BYTES = st.none() | st.binary(max_size=30)
NAMES = st.text(max_size=4)


def lists_of_records(attributes: st.SearchStrategy[int]) -> st.SearchStrategy[list[NewRecord]]:
    """What may stand in one batch."""
    headers = st.lists(st.tuples(NAMES, BYTES), max_size=2).map(tuple)
    one = st.builds(
        NewRecord,
        value=BYTES,
        key=BYTES,
        timestamp=TIMES,
        headers=headers,
        attributes=attributes,
    )
    return st.lists(one, min_size=1, max_size=8)


RECORDS = lists_of_records(attributes=st.integers(0, ATTRIBUTES_MAX))
RECORDS_OF_CLIENTS = lists_of_records(attributes=st.just(0))
BUILDERS = {"kafka-python": KafkaBuilder, "aiokafka": AioBuilder}
READERS = {"kafka-python": KafkaBatch, "aiokafka": AioBatch}


def expect(written: list[NewRecord], base_offset: int) -> list[Record]:
    """The records as they must be read."""
    found = []
    for offset, each in enumerate(written, base_offset):
        key = None if each.key is None else bytes(each.key)
        value = None if each.value is None else bytes(each.value)
        found.append(
            Record(offset, each.timestamp, key, value, tuple(each.headers), each.attributes)
        )
    return found


@given(RECORDS, st.integers(0, 4), st.integers(0, 2**50))
def test_round_trip(written: list[NewRecord], codec: int, base_offset: int) -> None:
    data = build_batch(written, codec=codec)
    header = check(data)
    assert max(r.timestamp for r in written) == header.max_timestamp
    patch_base_offset(data, base_offset, 0, batch_length=header.batch_length)
    expected = expect(written, base_offset)
    assert expected == list(iterate_records(data))
    assert [RecordTime(r.offset, r.timestamp) for r in expected] == list(iterate_times(data))


def parts_in_steps(body: bytes, count: int) -> list[tuple[object, ...]]:
    """Return what `iterate_parts` should find, by the functions for one record."""
    found: list[tuple[object, ...]] = []
    for each in iterate_fields(body, count):
        key, value, headers = read_rest(body, each)
        found.append(
            (
                each.attributes,
                each.timestamp_delta,
                each.offset_delta,
                key,
                value,
                headers,
                each.end,
            )
        )
    return found


def parts(body: bytes, count: int) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for attributes, time, offset, key_at, key_size, at, size, headers_at, end in iterate_parts(
        body, count
    ):
        key = None if key_size < 0 else body[key_at : key_at + key_size]
        value = None if size < 0 else body[at : at + size]
        headers = read_headers(body, headers_at, end)
        found.append((attributes, time, offset, key, value, headers, end))
    return found


@given(RECORDS)
def test_parts_are_those_of_one_record_after_another(written: list[NewRecord]) -> None:
    body = bytes(build_batch(written))[BATCH_OVERHEAD:]
    assert parts_in_steps(body, len(written)) == parts(body, len(written))


@given(RECORDS, st.data())
def test_damaged_parts_are_corrupt_just_when_the_record_is(
    written: list[NewRecord], data: st.DataObject
) -> None:
    body = bytearray(build_batch(written)[BATCH_OVERHEAD:])
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.none() | st.integers(0, len(body)))
    damaged, count = bytes(body[:cut]), len(written) + data.draw(st.integers(-1, 1))
    try:
        expected = parts_in_steps(damaged, count)
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            parts(damaged, count)
    else:
        assert expected == parts(damaged, count)


def key_values(data: bytes | bytearray, part_count: int = 2) -> list[KeyValue]:
    header = read_header(data)
    body = bytes(open_body(data, header))
    parts = list(iterate_key_values(body, header.record_count, part_count=part_count))
    assert all(len(part) == part_count for part in parts[:-1])
    return [pair for part in parts for pair in part]


@given(RECORDS, st.integers(0, 4), st.integers(1, 9))
def test_keys_and_values_are_those_of_the_records(
    written: list[NewRecord], codec: int, part_count: int
) -> None:
    data = build_batch(written, codec=codec)
    expected = [(each.key, each.value) for each in expect(written, 0)]
    assert expected == key_values(data, part_count)


@pytest.mark.parametrize("size", [0, 63, 64, 127, 128, 8_191, 8_192, 70_000])
def test_keys_and_values_of_every_length_are_read(size: int) -> None:
    key, value = b"k" * size, b"v" * (size + 1)
    data = build_batch([NewRecord(value, key=key), NewRecord(key, key=value)])
    assert [(key, value), (value, key)] == key_values(data)


@given(RECORDS_OF_CLIENTS, st.data())
def test_keys_and_values_of_a_damaged_batch_are_corrupt_or_read(
    written: list[NewRecord], drawn: st.DataObject
) -> None:
    data = build_batch(written)
    at = drawn.draw(st.integers(61, len(data) - 1))
    data[at] ^= drawn.draw(st.integers(1, 255))
    with suppress(CorruptBatch):
        assert len(written) == len(key_values(data))


@pytest.mark.parametrize("client", BUILDERS)
@settings(max_examples=30)
@given(written=RECORDS_OF_CLIENTS, codec=st.sampled_from([0, 1]), producer=st.booleans())
def test_batches_of_the_clients_read_equal(
    client: str, written: list[NewRecord], codec: int, producer: bool
) -> None:
    who = (77, 3, 41) if producer else (-1, -1, -1)
    builder: Any = BUILDERS[client](2, codec, 0, *who, 1 << 20)
    for index, record in enumerate(written):
        builder.append(
            index, timestamp=record.timestamp, key=record.key, value=record.value,
            headers=list(record.headers),
        )  # fmt: skip
    data = bytes(builder.build())
    header = check(data)
    assert who == (header.producer_id, header.producer_epoch, header.base_sequence)
    expected = expect(written, 0)
    assert expected == list(iterate_records(data))
    if codec == 0:
        assert data == bytes(
            build_batch(written, producer=BatchProducer(*who), leader_epoch=0)
        ) or (data[21:] == bytes(build_batch(written, producer=BatchProducer(*who)))[21:])


@pytest.mark.parametrize("client", READERS)
@settings(max_examples=30)
@given(written=RECORDS, codec=st.sampled_from([0, 1]))
def test_our_batches_are_read_by_the_clients(
    client: str, written: list[NewRecord], codec: int
) -> None:
    data = build_batch(written, codec=codec, base_offset=500)
    theirs: Any = READERS[client](bytes(data))
    assert theirs.validate_crc()
    found = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs]
    assert [
        (500 + i, r.timestamp, r.key, r.value, list(r.headers)) for i, r in enumerate(written)
    ] == found


@pytest.mark.parametrize("codec", [2, 3, 4])
def test_other_codecs_are_read_by_aiokafka(codec: int) -> None:
    data = build_batch([NewRecord(b"v" * 200_000, timestamp=5)] * 3, codec=codec)
    theirs: Any = AioBatch(bytes(data))
    assert [b"v" * 200_000] * 3 == [record.value for record in theirs]


def test_iterate_batches_leaves_a_cut_batch_out() -> None:
    first, second = batch("a"), batch("b", "c")
    run = first + second
    assert [1, 2] == [header.record_count for header, _ in iterate_batches(run)]
    assert [first] == [bytes(data) for _, data in iterate_batches(run[:-1])]
    assert [] == list(iterate_batches(b""))
    struct.pack_into(">i", run, 8, 3)
    with pytest.raises(CorruptBatch):
        list(iterate_batches(run))


@pytest.mark.parametrize("count", [1, 3])
def test_count_that_is_not_the_number_of_records_is_corrupt(count: int) -> None:
    data = batch("a", "b")
    struct.pack_into(">i", data, 57, count)
    refresh_checksum(data)
    with pytest.raises(CorruptBatch):
        list(iterate_records(data))
    with pytest.raises(CorruptBatch):
        key_values(data)


def test_records_are_decoded_lazily() -> None:
    data = batch("a", "b")
    data[-3] ^= 0xFF
    reading = iterate_records(data)
    assert b"a" == next(reading).value


def test_empty_batch_has_no_records() -> None:
    data = batch("a")[:61]
    struct.pack_into(">i", data, 8, 49)
    struct.pack_into(">i", data, 57, 0)
    assert [] == list(iterate_records(data))
    assert [] == key_values(data)


@pytest.mark.parametrize("is_commit", [True, False])
def test_control_batch_is_known_to_the_clients(is_commit: bool) -> None:
    data = build_control_batch(
        is_commit=is_commit, producer_id=9, producer_epoch=1, coordinator_epoch=4,
        timestamp_ms=NOW_MS, base_offset=12,
    )  # fmt: skip
    header = read_header(data)
    assert (True, True, 12, 1) == (
        header.is_control, header.is_transactional, header.last_offset, header.record_count
    )  # fmt: skip
    theirs: Any = KafkaBatch(bytes(data))
    assert theirs.is_control_batch
    marker = next(theirs)
    assert is_commit == marker.commit
    assert [(12, struct.pack(">hh", 0, int(is_commit)), struct.pack(">hi", 0, 4))] == [
        (r.offset, r.key, r.value) for r in iterate_records(data)
    ]
