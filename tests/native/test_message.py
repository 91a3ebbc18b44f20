"""A record as a consumer sees it; the rest is in the tests of the codec."""

from kledger.batches.record import Header
from kledger.ledger import Position
from kledger.native.message import PRODUCER_NAME, SEQUENCE_ID, Message, MessageEntry
from kledger.native.message_id import MessageId


def message(*headers: Header, link: object | None = None) -> Message:
    return Message(
        MessageEntry("orders", 2, Position(5, 120), 7, link=link),
        3,
        key=None,
        value=b"v",
        headers=headers,
        publish_timestamp=1,
        event_timestamp=None,
        offset=40,
    )


def test_id_holds_what_an_acknowledgement_needs() -> None:
    link = object()
    found = message(link=link).id
    assert (MessageId(5, 120, 3, 2), 7, link) == (found, found.batch_size, found.link)


def test_properties_are_texts_the_last_of_a_name() -> None:
    headers: tuple[Header, ...] = (
        ("a", b"1"),
        ("a", b"2"),
        ("b", b"\xff"),
        ("c", None),
        ("d", b""),
    )
    found = message(*headers, (PRODUCER_NAME, b"p"))
    assert {"a": "2", "d": ""} == found.properties
    assert [*headers, (PRODUCER_NAME, b"p")] == found.headers


def test_headers_are_the_callers_to_change() -> None:
    found = message(("a", b"1"))
    found.headers.clear()
    assert [("a", b"1")] == found.headers


def test_own_headers_become_attributes() -> None:
    found = message((PRODUCER_NAME, b"p"), (SEQUENCE_ID, b"-5"))
    assert ("p", -5, {}) == (found.producer_name, found.sequence_id, found.properties)
    assert (None, None) == (message().producer_name, message().sequence_id)
