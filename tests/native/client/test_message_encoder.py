"""Messages into batches and back, and records of Kafka's clients as messages."""

from typing import Any

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.compression import Codec
from kledger.batches.header import patch_base_offset, read_header, set_log_append_time
from kledger.batches.reader import iterate_records
from kledger.ledger import Position
from kledger.native.client.message_decoder import decode_delivery
from kledger.native.client.message_encoder import copied_message, encode, outgoing_message
from kledger.native.errors import InvalidArgument, Unreadable
from kledger.native.message import PRODUCER_NAME, SEQUENCE_ID, Message
from kledger.native.message_id import MessageId
from kledger.subscriptions.entry_view import DELIVER_AT
from kledger.subscriptions.model import ALL, Delivery

NOTHING: dict[str, Any] = {
    "key": None,
    "properties": None,
    "event_timestamp": None,
    "deliver_at": None,
    "deliver_after_ms": None,
    "sequence_id": None,
    "producer_name": None,
    "outcome": None,
    "now_ms": 1_000,
}
COPIED: dict[str, Any] = {"outcome": None, "now_ms": 2_000}


def delivery(batch: bytearray, *, records: int = ALL, redelivery_count: int = 0) -> Delivery:
    return Delivery(Position(5, 120), batch, records, redelivery_count)


def read(batch: bytearray, **options: int) -> list[Message]:
    return decode_delivery(delivery(batch, **options), topic="orders", partition=2, link=None)


def there_and_back(value: bytes | None, **given: object) -> Message:
    return read(encode([outgoing_message(value, **NOTHING | given)]))[0]


def test_bare_message_has_nothing_but_its_value() -> None:
    message = there_and_back(b"v")
    assert (b"v", None, {}, []) == (
        message.value, message.key, message.properties, message.headers
    )  # fmt: skip
    assert (1_000, None, None, None) == (
        message.publish_timestamp, message.event_timestamp,
        message.producer_name, message.sequence_id,
    )  # fmt: skip


def test_everything_comes_back() -> None:
    message = there_and_back(
        b"v",
        key=b"k",
        properties={"a": "ä", "b": ""},
        event_timestamp=77,
        sequence_id=9,
        producer_name="p",
    )
    assert (b"k", {"a": "ä", "b": ""}) == (message.key, message.properties)
    assert (77, 77) == (message.publish_timestamp, message.event_timestamp)
    assert ("p", 9) == (message.producer_name, message.sequence_id)
    assert [
        ("a", "ä".encode()), ("b", b""), (PRODUCER_NAME, b"p"), (SEQUENCE_ID, b"9")
    ] == message.headers  # fmt: skip


def test_tombstone_and_empty_value_are_two_things() -> None:
    assert None is there_and_back(None).value
    assert b"" == there_and_back(b"").value


def test_delayed_message_has_a_header_and_its_own_batch() -> None:
    message = outgoing_message(b"v", **NOTHING | {"deliver_at": 5_000})
    assert message.is_alone
    assert [(DELIVER_AT, b"5000")] == read(encode([message]))[0].headers


def test_coordinates_are_those_of_the_record() -> None:
    batch = encode(outgoing_message(b"%d" % n, **NOTHING) for n in range(3))
    patch_base_offset(batch, 40, 0, batch_length=read_header(batch).batch_length)
    messages = read(batch, redelivery_count=4)
    assert [40, 41, 42] == [each.offset for each in messages]
    assert [MessageId(5, 120, index, 2) for index in range(3)] == [each.id for each in messages]
    assert {("orders", 2, 4)} == {
        (each.topic, each.partition, each.redelivery_count) for each in messages
    }
    assert "Message('orders', 5:120:0:2, key=None, offset=40)" == repr(messages[0])


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_kafka_are_read_one_by_one(codec: Codec) -> None:
    """Names that are not UTF-8, names twice, values that are not text, no value at all."""
    headers = (("a", b"1"), ("a", b"2"), ("b\udcff", b"x"), ("c", b"\xff"), ("d", None))
    batch = build_batch(
        [NewRecord(b"one", b"k", 5, headers), NewRecord(None, None, 7)], codec=codec
    )
    one, two = read(batch)
    assert list(headers) == one.headers
    assert {"a": "2", "b\udcff": "x"} == one.properties
    assert (5, None, b"k") == (one.publish_timestamp, one.event_timestamp, one.key)
    assert (None, 7, None) == (two.value, two.publish_timestamp, two.key)


def test_own_headers_that_others_wrote_oddly_are_no_trouble() -> None:
    headers = ((SEQUENCE_ID, b"x"), (PRODUCER_NAME, b"\xff"))
    (message,) = read(build_batch([NewRecord(b"v", headers=headers)]))
    assert (None, "\ufffd", {}) == (
        message.sequence_id, message.producer_name, message.properties
    )  # fmt: skip


def test_only_the_delivered_records_are_decoded() -> None:
    batch = encode(outgoing_message(b"%d" % n, **NOTHING) for n in range(5))
    assert [b"0", b"3"] == [each.value for each in read(batch, records=0b01001)]
    assert 2 == delivery(batch, records=0b01001).record_count
    assert 5 == delivery(batch).record_count


def test_event_time_outlives_log_append_time() -> None:
    batch = encode(
        [
            outgoing_message(b"a", **NOTHING | {"event_timestamp": 5}),
            outgoing_message(b"b", **NOTHING),
        ]
    )
    set_log_append_time(batch, 9_000)
    one, two = read(batch)
    assert (9_000, 5) == (one.publish_timestamp, one.event_timestamp)
    assert (9_000, None) == (two.publish_timestamp, two.event_timestamp)


def test_kafka_sees_event_time_as_timestamp_and_properties_as_headers() -> None:
    given = {"event_timestamp": 77, "properties": {"a": "b"}, "key": b"k"}
    (record,) = iterate_records(encode([outgoing_message(b"v", **NOTHING | given)]))
    assert (0, 77, b"k", b"v", (("a", b"b"),)) == record[:5]


def test_damaged_batch_names_an_id_that_can_be_acknowledged() -> None:
    batch = encode([outgoing_message(b"value", **NOTHING)])
    batch[61] = 0x7E
    with pytest.raises(Unreadable, match="entry 5:120 of orders-2") as caught:
        read(batch)
    assert MessageId(5, 120, -1, 2) == caught.value.id


def test_copied_message_keeps_its_contents() -> None:
    message = there_and_back(
        b"v", key=b"k", properties={"a": "b"}, event_timestamp=77, deliver_at=5, sequence_id=1
    )
    again = read(encode([copied_message(message, {"REAL_TOPIC": "orders"}, **COPIED)]))[0]
    assert (b"v", b"k", 77) == (again.value, again.key, again.event_timestamp)
    assert [("a", b"b"), ("REAL_TOPIC", b"orders")] == again.headers
    plain = read(encode([copied_message(there_and_back(None), {}, **COPIED)]))[0]
    assert (None, None, 2_000) == (plain.value, plain.event_timestamp, plain.publish_timestamp)


@pytest.mark.parametrize(
    ("value", "given"),
    [
        ("text", {}),
        (1, {}),
        (b"v", {"key": 1}),
        (b"v", {"properties": {"a": 1}}),
        (b"v", {"properties": {1: "a"}}),
        (b"v", {"properties": {"kledger.deliver-at": "1"}}),
        (b"v", {"properties": {"a": "\ud800"}}),
        (b"v", {"properties": [("a", "b")]}),
        (b"v", {"event_timestamp": -1}),
        (b"v", {"event_timestamp": 1.5}),
        (b"v", {"deliver_at": -1}),
        (b"v", {"deliver_at": 10**15}),  # the time in microseconds, perhaps
        (b"v", {"sequence_id": True}),
        (b"v", {"sequence_id": 1 << 63}),
    ],
)
def test_bad_values_are_refused(value: Any, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        outgoing_message(value, **NOTHING | given)


def test_buffers_are_taken_as_they_are_now() -> None:
    changing = bytearray(b"before")
    value: Any = changing
    message = outgoing_message(value, **NOTHING | {"key": memoryview(b"k")})
    changing[:] = b"after!"
    assert (b"before", b"k") == (read(encode([message]))[0].value, message.key)
