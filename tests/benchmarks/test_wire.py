"""The raw load's requests, read by codecs that others wrote."""

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from benchmarks import wire


def test_varints_are_zigzag() -> None:
    for value, expected in ((0, b"\0"), (-1, b"\1"), (1, b"\2"), (64, b"\x80\1"), (-65, b"\x81\1")):
        assert wire.varint(value) == expected


def test_batch_is_valid_for_another_client() -> None:
    values = [b"one", b"", b"three" * 100]
    batch = DefaultRecordBatch(wire.record_batch(values, 1_700_000_000_000))
    assert batch.validate_crc()
    assert [(record.offset, record.value) for record in batch] == list(enumerate(values))


def test_requests_are_framed() -> None:
    batch = wire.record_batch([b"x"], 1)
    for key, request in (
        (0, wire.produce_request("t", 0, batch, acks=-1)),
        (1, wire.fetch_request({"t": [0, 1, 2]}, wait_ms=500)),
        (3, wire.metadata_request()),
    ):
        size, found = struct.unpack_from(">ih", request)
        assert (size, found) == (len(request) - 4, key)


def test_error_code_is_read_from_a_produce_response() -> None:
    topic = b"some-topic"
    response = struct.pack(f">iih{len(topic)}sii", 0, 1, len(topic), topic, 1, 0)
    assert wire.produce_error(response + struct.pack(">hqqqi", 10, -1, -1, -1, 0)) == 10


def test_batch_of_a_transaction_names_its_producer() -> None:
    batch = DefaultRecordBatch(wire.record_batch([b"x"], 1, producer=(7, 3, 9)))
    assert batch.validate_crc()
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 9)


def test_session_of_a_fetch_is_named_and_read() -> None:
    request = wire.fetch_request({}, wait_ms=1, session=(5, 2))
    assert struct.pack(">iii", 5, 2, 0) in request
    assert wire.fetch_session_id(struct.pack(">ihii", 0, 0, 5, 0)) == 5
    with pytest.raises(ValueError, match="error 70"):
        wire.fetch_session_id(struct.pack(">ihii", 0, 70, 0, 0))


def test_fetch_begins_at_its_offset_and_says_how_far_it_came() -> None:
    assert struct.pack(">iiq", 0, -1, 41) in wire.fetch_request({"t": [0]}, wait_ms=1, offset=41)
    first, second = (bytearray(wire.record_batch([b"x"] * count, 1)) for count in (2, 1))
    struct.pack_into(">q", first, 0, 41)
    struct.pack_into(">q", second, 0, 43)

    def response(records: bytes, error: int = 0, aborted: bytes = struct.pack(">i", -1)) -> bytes:
        head = struct.pack(">ihii", 0, 0, 0, 1) + wire.string("t") + struct.pack(">i", 1)
        head += struct.pack(">ihqqq", 0, error, 44, 44, 0) + aborted + struct.pack(">i", -1)
        return head + wire.sized(records)

    assert wire.fetched_end(response(bytes(first + second)), "t") == 44
    aborted = struct.pack(">iqq", 1, 7, 40)
    assert wire.fetched_end(response(bytes(first), aborted=aborted), "t") == 43
    assert wire.fetched_end(response(b""), "t") is None
    with pytest.raises(ValueError, match="t was answered with error 1"):
        wire.fetched_end(response(b"", error=1), "t")


def test_topics_are_counted_and_refusals_read() -> None:
    brokers = struct.pack(">ii", 1, 1) + wire.string("host") + struct.pack(">ih", 9092, -1)
    assert wire.topic_count(brokers + struct.pack(">ii", 1, 1900)) == 1900
    refused = struct.pack(">ii", 0, 2) + wire.string("a") + struct.pack(">hh", 0, -1)
    refused += wire.string("b") + struct.pack(">h", 36) + wire.string("exists")
    assert wire.create_topics_errors(refused) == [0, 36]
