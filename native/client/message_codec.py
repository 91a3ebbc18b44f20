"""Encodes messages into record batches and decodes them.

Rule: batches of Kafka clients and of native clients are decoded alike. Of the record attributes,
which Kafka does not use, bit 0 marks the timestamp as an event time, bit 1 a native producer.
Must not know: links, queues.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from kledger.batches.buffers import Buffer
from kledger.batches.builder import NO_PRODUCER, BatchProducer, NewRecord, build_batch
from kledger.batches.compression import OUTPUT_SIZE_MAX
from kledger.batches.errors import BatchError, DecompressedTooLarge
from kledger.batches.header import BatchHeader, read_header
from kledger.batches.pacing import STEPS_PER_PAUSE, Pause, no_pause
from kledger.batches.reader import iterate_fields, open_body
from kledger.batches.record import Header, RecordFields, read_rest
from kledger.native.client.subscribe_options import check_number
from kledger.native.errors import InvalidArgument, Unreadable
from kledger.native.message import OWN_HEADERS, PRODUCER_NAME, SEQUENCE_ID, Message
from kledger.native.message_id import MessageId
from kledger.subscriptions.entry_view import DELIVER_AT, DIGITS_MAX
from kledger.subscriptions.model import ALL, Delivery

EVENT_TIME_BIT = 0x01
NATIVE_BIT = 0x02

RECORD_OVERHEAD = 32
"""Approximate bytes of a record beside key, value and headers; for limits."""
DUE_MAX_MS = 10**DIGITS_MAX - 1
"""A message with a later time would be delivered at once."""


class OutgoingMessage(NamedTuple):
    """A message that is ready to be sent.

    Attributes:
        key: the record's key, which decides the partition.
        size: approximate bytes.
        is_alone: it must be the only message of its batch.
    """

    record: NewRecord
    key: bytes | None
    size: int
    is_alone: bool = False


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
    now_ms: int,
) -> OutgoingMessage:
    """Check the arguments of a send and return the message.

    Raises:
        InvalidArgument: an argument is wrong.
    """
    if type(value) is not bytes and value is not None:
        value = _bytes_of("value", value)
    if type(key) is not bytes and key is not None:
        key = _key_of(key)
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
    record = NewRecord(value, key, timestamp, headers, attributes)
    return OutgoingMessage(record, key, size, is_alone=deliver_at is not None)


def copied_message(
    message: Message, properties: Mapping[str, str], *, now_ms: int
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
    record = NewRecord(message.value, message.key, timestamp, headers, attributes)
    return OutgoingMessage(record, message.key, size)


def encode(messages: Iterable[OutgoingMessage], producer: BatchProducer = NO_PRODUCER) -> bytearray:
    """Build a batch of these messages."""
    return build_batch((message.record for message in messages), producer=producer)


def decode(
    delivery: Delivery,
    *,
    topic: str,
    partition: int,
    link: object | None,
    size_max: int = OUTPUT_SIZE_MAX,
    pause: Pause = no_pause,
) -> list[Message]:
    """Return the delivered messages of one entry.

    Args:
        delivery: the entry and its delivered records.
        topic: its short name.
        partition: its number in the topic.
        link: the link that delivered it.
        size_max: the limit of the decompressed size, in bytes.
        pause: see `batches.pacing`.

    Raises:
        Unreadable: the batch is damaged.
        DecompressedTooLarge: it exceeds `size_max`, which is below the general limit.
    """
    try:
        header = read_header(delivery.data)
        body = open_body(delivery.data, header, size_max, pause)
        found = iterate_messages(
            delivery, header, body, topic=topic, partition=partition, link=link, pause=pause
        )
        return list(found)
    except DecompressedTooLarge as error:
        if size_max < OUTPUT_SIZE_MAX:
            raise
        raise unreadable(delivery, error, topic=topic, partition=partition, link=link) from error
    except BatchError as error:
        raise unreadable(delivery, error, topic=topic, partition=partition, link=link) from error


def iterate_messages(
    delivery: Delivery,
    header: BatchHeader,
    body: Buffer,
    *,
    topic: str,
    partition: int,
    link: object | None,
    pause: Pause = no_pause,
) -> Iterator[Message]:
    """Yield the delivered messages of one entry.

    `pause` is called after every `STEPS_PER_PAUSE` records, or headers if there are more.

    Raises:
        BatchError: the batch is damaged.
    """
    size, position, is_append_time = (
        header.record_count,
        delivery.position,
        header.is_log_append_time,
    )
    header_count = 0
    for index, fields in wanted_fields(delivery, body, size, pause):
        key, value, headers = read_rest(body, fields, pause)
        if headers:
            header_count += len(headers)
            if header_count >= STEPS_PER_PAUSE:
                header_count = 0
                pause()
        # With LogAppendTime the record still holds the timestamp that its producer set.
        timestamp = header.base_timestamp + fields.timestamp_delta
        yield Message(
            topic=topic,
            partition=partition,
            position=position,
            index=index,
            batch_size=size,
            key=key,
            value=value,
            headers=headers,
            publish_timestamp=header.max_timestamp if is_append_time else timestamp,
            event_timestamp=timestamp if fields.attributes & EVENT_TIME_BIT else None,
            offset=header.base_offset + fields.offset_delta,
            redelivery_count=delivery.redelivery_count,
            link=link,
        )


def wanted_fields(
    delivery: Delivery, body: Buffer, count: int, pause: Pause = no_pause
) -> Iterator[tuple[int, RecordFields]]:
    """Yield index and fields of the delivered ones among `count` records."""
    every = enumerate(iterate_fields(body, count, pause))
    return every if delivery.records == ALL else _picked(every, delivery.records)


def _picked(
    every: Iterable[tuple[int, RecordFields]], records: int
) -> Iterator[tuple[int, RecordFields]]:
    # By bytes: shifting a mask of a million bits would copy it for every record.
    wanted = records.to_bytes(records.bit_length() // 8 + 1, "little")
    end = 8 * len(wanted)
    for index, fields in every:
        if index < end and wanted[index >> 3] >> (index & 7) & 1:
            yield index, fields


def unreadable(
    delivery: Delivery, error: BatchError, *, topic: str, partition: int, link: object | None
) -> Unreadable:
    """Return the error of a damaged batch, with the id of its entry."""
    position = delivery.position
    size = 0
    with suppress(BatchError):
        size = read_header(delivery.data).record_count
    whole = MessageId(*position, -1, partition, size, link)
    return Unreadable(f"entry {position} of {topic}-{partition}: {error}", whole)


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


def _key_of(given: object) -> bytes:
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
