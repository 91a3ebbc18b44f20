"""The requests of a transactional producer, read by a codec that was written from the schemas."""

from importlib import import_module
from typing import Any

import pytest

from benchmarks import transaction_wire as wire
from benchmarks.wire import record_batch
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.header import decode_request_header
from kledger.gateway.wire.produce_codec import parse_produce_request

PRODUCER = wire.Producer("tx", 7, 3)


def read(stem: str, request: bytes) -> Any:
    """Decode a framed request; all of it must be used."""
    frame = memoryview(request)[4:]
    header = decode_request_header(frame)
    message = import_module(f"kledger.gateway.wire.messages.{stem}").REQUEST
    return decode(message, header.api_version, frame, header.body_start)


def answer(stem: str, version: int, **fields: Any) -> bytes:
    """Encode the body of an answer, behind the tags of its header."""
    message = import_module(f"kledger.gateway.wire.messages.{stem}").RESPONSE
    return encode(message(**fields), version)


def test_requests_name_the_producer() -> None:
    assert read("k10_find_coordinator", wire.find_coordinator_request(PRODUCER)).key == "tx"
    found = read("k22_init_producer_id", wire.init_producer_id_request(PRODUCER))
    assert found.transactional_id == "tx"
    for protocol in (1, 2):
        found = read("k26_end_txn", wire.end_request(PRODUCER, protocol=protocol))
        identity = (found.transactional_id, found.producer_id, found.producer_epoch)
        assert (identity, found.committed) == (("tx", 7, 3), True)


def test_partition_is_added_by_name() -> None:
    found = read("k24_add_partitions_to_txn", wire.add_partition_request(PRODUCER, "t"))
    (topic,) = found.v3_and_below_topics
    assert (topic.name, list(topic.partitions)) == ("t", [0])


@pytest.mark.parametrize("protocol", [1, 2])
def test_produce_carries_the_batch(protocol: int) -> None:
    batch = record_batch([b"x"], 1, producer=(7, 3, 0))
    frame = memoryview(wire.produce_request(PRODUCER, "t", batch, protocol=protocol))[4:]
    header = decode_request_header(frame)
    request, records = parse_produce_request(frame, header.api_version, header.body_start)
    assert request.transactional_id == "tx"
    ((_, index),) = request.partitions
    assert (0, batch) == (index, bytes(records[0] or b""))


def test_new_epoch_is_taken_from_the_end_of_protocol_2() -> None:
    body = answer("k26_end_txn", 5, error_code=0, producer_id=7, producer_epoch=4)
    assert wire.ended(PRODUCER, b"\0" + body, protocol=2) == (0, PRODUCER._replace(epoch=4))
    body = answer("k26_end_txn", 2, error_code=51)
    assert wire.ended(PRODUCER, body, protocol=1) == (51, PRODUCER)


def test_id_is_taken_from_the_answer() -> None:
    body = answer("k22_init_producer_id", 1, error_code=0, producer_id=9, producer_epoch=1)
    assert wire.coordinator_error(body) == 0
    assert wire.identified(PRODUCER, body) == wire.Producer("tx", 9, 1)
