"""The raw load's requests, read by codecs that others wrote."""

import struct

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
