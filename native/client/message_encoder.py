"""Message encoder: checks the messages of native producers and builds record batches of them.

Rule: an argument that cannot be encoded is refused here, before the message counts as pending.
Must not know: links, queues.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kledger.batches.builder import NO_PRODUCER, BatchProducer, build_batch
from kledger.batches.record import Header
from kledger.native.client.subscribe_options import check_number
from kledger.native.errors import InvalidArgument
from kledger.native.message import (
    EVENT_TIME_BIT,
    NATIVE_BIT,
    OWN_HEADERS,
    PRODUCER_NAME,
    SEQUENCE_ID,
    Message,
)
from kledger.native.message_id import MessageId
from kledger.subscriptions.entry_view import DELIVER_AT, DIGITS_MAX

RECORD_OVERHEAD = 32
"""Approximate bytes of a record beside key, value and headers; for limits."""
_new_tuple = tuple.__new__
DUE_MAX_MS = 10**DIGITS_MAX - 1
"""A message with a later time would be delivered at once."""


class OutgoingMessage(NamedTuple):
    """A message that is ready to be sent; flat, as the garbage collector walks all that wait.

    Attributes:
        value: this and the next four are `batches.builder.RecordParts`.
        outcome: becomes its id when it is stored.
        size: approximate bytes.
        is_alone: it must be the only message of its batch.
        partition: where it is sent; None: the producer chooses by its key.
    """

    value: bytes | None
    key: bytes | None
    timestamp: int
    headers: Sequence[Header]
    attributes: int
    outcome: asyncio.Future[MessageId]
    size: int
    is_alone: bool = False
    partition: int | None = None


def plain_message(
    value: bytes | None,
    key: bytes | str | None,
    outcome: asyncio.Future[MessageId],
    now_ms: int,
    partition: int | None = None,
) -> OutgoingMessage:
    """Return a message of key and value alone, as most are, at the least cost.

    Raises:
        InvalidArgument: they are not bytes.
    """
    size = RECORD_OVERHEAD
    if value is not None:
        if type(value) is not bytes:
            value = _bytes_of("value", value)
        size += len(value)
    if key is not None:
        if type(key) is not bytes:
            key = checked_key(key)
        size += len(key)
    # A named tuple made in this way costs half of a call of its class.
    fields = (value, key, now_ms, (), NATIVE_BIT, outcome, size, False, partition)
    return _new_tuple(OutgoingMessage, fields)


def outgoing_message(
    value: bytes | None,
    *,
    key: bytes | str | None,
    properties: Mapping[str, str] | None,
    event_timestamp: int | None,
    deliver_at: int | None,
    deliver_after_ms: int | None,
    sequence_id: int | None,
    producer_name: str | None,
    outcome: asyncio.Future[MessageId],
    now_ms: int,
) -> OutgoingMessage:
    """Check the arguments of a send and return the message.

    Raises:
        InvalidArgument: an argument is wrong.
    """
    value = None if value is None else _bytes_of("value", value)
    key = None if key is None else checked_key(key)
    size = RECORD_OVERHEAD + len(value or b"") + len(key or b"")
    attributes, timestamp = NATIVE_BIT, now_ms
    headers = _headers_of(properties) if properties else ()
    if producer_name is not None:
        headers += ((PRODUCER_NAME, producer_name.encode()),)
    if sequence_id is not None:
        check_number("sequence_id", sequence_id)
        headers += ((SEQUENCE_ID, b"%d" % sequence_id),)
    if deliver_after_ms is not None:
        deliver_at = _due_ms(deliver_at, deliver_after_ms, now_ms)
    if deliver_at is not None:
        check_number("deliver_at", deliver_at, at_most=DUE_MAX_MS)
        headers += ((DELIVER_AT, b"%d" % deliver_at),)
    if event_timestamp is not None:
        check_number("event_timestamp", event_timestamp)
        attributes |= EVENT_TIME_BIT
        timestamp = event_timestamp
    for name, content in headers:
        size += len(name) + len(content or b"") + 4
    return OutgoingMessage(
        value, key, timestamp, headers, attributes, outcome, size, is_alone=deliver_at is not None
    )


def copied_message(
    message: Message,
    properties: Mapping[str, str],
    *,
    outcome: asyncio.Future[MessageId],
    now_ms: int,
) -> OutgoingMessage:
    """Return a copy of a received message for another topic, with more properties.

    The headers of the native façade (producer name, sequence id) are not copied.
    """
    headers = [each for each in message.headers if not each[0].startswith(OWN_HEADERS)]
    headers += _headers_of(properties)
    attributes, timestamp = NATIVE_BIT, now_ms
    if message.event_timestamp is not None:
        attributes, timestamp = NATIVE_BIT | EVENT_TIME_BIT, message.event_timestamp
    size = RECORD_OVERHEAD + len(message.value or b"") + len(message.key or b"")
    size += sum(len(name) + len(content or b"") + 4 for name, content in headers)
    return OutgoingMessage(
        message.value, message.key, timestamp, headers, attributes, outcome, size
    )


def encode(messages: Iterable[OutgoingMessage], producer: BatchProducer = NO_PRODUCER) -> bytearray:
    """Build a batch of these messages."""
    return build_batch((message[:5] for message in messages), producer=producer)


def _due_ms(deliver_at: int | None, deliver_after_ms: int, now_ms: int) -> int:
    if deliver_at is not None:
        raise InvalidArgument("deliver_at and deliver_after_ms: expected one of them, got both")
    if type(deliver_after_ms) is not int or deliver_after_ms < 0:
        raise InvalidArgument(f"deliver_after_ms: expected 0 or more, got {deliver_after_ms!r}")
    return now_ms + deliver_after_ms


def _headers_of(properties: Mapping[str, str]) -> tuple[Header, ...]:
    given: object = properties  # callers may be untyped
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"properties: expected a mapping, got {type(given).__name__}")
    headers: list[Header] = []
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgument(f"properties: expected text for text, got {name!r}: {value!r}")
        if name.startswith(OWN_HEADERS):
            raise InvalidArgument(f"property {name!r}: names in {OWN_HEADERS!r} are not free")
        try:
            headers.append((name, value.encode()))
            name.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"property {name!r}: {error.reason}") from None
    return tuple(headers)


def checked_key(given: object) -> bytes:
    """Return a key, text as UTF-8. Raises InvalidArgument."""
    if type(given) is bytes:
        return given
    if not isinstance(given, str):
        return _bytes_of("key", given)
    try:
        return given.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"key {given!r}: {error.reason}") from None


def _bytes_of(what: str, given: object) -> bytes:
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise InvalidArgument(f"{what}: expected bytes, got {type(given).__name__}")
