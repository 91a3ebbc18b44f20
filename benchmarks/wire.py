"""Wire: the few Kafka requests that the raw load makes by hand.

Rule: old, plain versions that every server of today takes; nothing here is shared with the server
under test, whose own codec must not be what measures it.
"""

from __future__ import annotations

import struct

import crc32c

_PRODUCE, _FETCH, _METADATA, _CREATE_TOPICS = 0, 1, 3, 19
_TIMEOUT_MS = 120_000
_NO_TAGS = b"\0"
_CLIENT_ID = b"raw"
_BATCH_TAIL = struct.Struct(">hiqqqhii")
_BATCH_HEAD = struct.Struct(">qiibI")
_TRANSACTIONAL = 0x10
_LAST_OFFSET_DELTA = 23
"""Where it is in a batch."""
NO_SESSION, NEW_SESSION = (0, -1), (0, 0)
CORRELATION = slice(8, 12)


def varint(value: int) -> bytes:
    """Encode a signed number in zigzag form."""
    return uvarint((value << 1) ^ (value >> 63))


def record_batch(
    values: list[bytes], timestamp_ms: int, *, producer: tuple[int, int, int] | None = None
) -> bytes:
    """Build a record batch of format 2 without keys, headers or compression.

    Args:
        values: of the records.
        timestamp_ms: of all of them.
        producer: id, epoch and first sequence of a transactional producer.
    """
    records = b"".join(_record(index, value) for index, value in enumerate(values))
    last, attributes = len(values) - 1, _TRANSACTIONAL if producer else 0
    head = (attributes, last, timestamp_ms, timestamp_ms, *(producer or (-1, -1, -1)), len(values))
    tail = _BATCH_TAIL.pack(*head) + records
    return _BATCH_HEAD.pack(0, len(tail) + 9, 0, 2, crc32c.crc32c(tail)) + tail


def _record(delta: int, value: bytes) -> bytes:
    body = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def framed(key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
    """Put a header of version 1, or 2 when flexible, and the size in front of a body."""
    header = struct.pack(f">hhih{len(_CLIENT_ID)}s", key, version, 0, len(_CLIENT_ID), _CLIENT_ID)
    header += _NO_TAGS if is_flexible else b""
    return struct.pack(">i", len(header) + len(body)) + header + body


def string(text: str) -> bytes:
    """Encode a string with its size in two bytes."""
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def sized(data: bytes) -> bytes:
    """Encode bytes with their size in four bytes."""
    return struct.pack(">i", len(data)) + data


def compact(data: bytes) -> bytes:
    """Encode bytes or a string with the size of flexible versions."""
    return uvarint(len(data) + 1) + data


def uvarint(value: int) -> bytes:
    """Encode a number that is not negative."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def produce_request(topic: str, partition: int, batch: bytes, *, acks: int) -> bytes:
    """Build a framed Produce request, version 7, of one batch."""
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + string(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    return framed(_PRODUCE, 7, body)


def produce_error(response: bytes | memoryview) -> int:
    """Read the error code of the one partition from an unframed Produce response, version 7."""
    (length,) = struct.unpack_from(">h", response, 8)
    return int(struct.unpack_from(">h", response, 8 + 2 + length + 4 + 4)[0])


def fetch_request(
    places: dict[str, list[int]],
    *,
    wait_ms: int,
    session: tuple[int, int] = NO_SESSION,
    offset: int = 0,
) -> bytes:
    """Build a framed Fetch request, version 11, at one offset of every place.

    Args:
        places: partitions by topic; in an incremental fetch, only what has changed.
        wait_ms: how long the server may wait for a first byte.
        session: its id and epoch.
        offset: where to read.
    """
    body = struct.pack(">iiiibiii", -1, wait_ms, 1, 50 << 20, 0, *session, len(places))
    for topic, partitions in places.items():
        body += string(topic) + struct.pack(">i", len(partitions))
        body += b"".join(
            struct.pack(">iiqqi", each, -1, offset, -1, 1 << 20) for each in partitions
        )
    return framed(_FETCH, 11, body + struct.pack(">i", 0) + string(""))


def fetch_session_id(response: bytes) -> int:
    """Read the session from the body of a Fetch response, version 11.

    Raises:
        ValueError: the fetch was refused.
    """
    _, error, session_id = struct.unpack_from(">ihi", response)
    if error:
        raise ValueError(f"Fetch was answered with error {error}")
    return int(session_id)


def fetched_end(response: bytes, topic: str) -> int | None:
    """Read what the body of a Fetch response, version 11, brings of its one partition.

    Returns:
        The offset after the last record; None if it brings none.

    Raises:
        ValueError: the fetch was refused.
    """
    fetch_session_id(response)
    at = 14 + len(string(topic)) + 4
    _, error = struct.unpack_from(">ih", response, at)
    if error:
        raise ValueError(f"{topic} was answered with error {error}")
    at += 6 + 24
    (aborted,) = struct.unpack_from(">i", response, at)
    at += 4 + 16 * max(aborted, 0) + 4
    (size,) = struct.unpack_from(">i", response, at)
    at, end, found = at + 4, at + 4 + size, None
    while at < end:
        base_offset, length = struct.unpack_from(">qi", response, at)
        (last_delta,) = struct.unpack_from(">i", response, at + _LAST_OFFSET_DELTA)
        found = base_offset + last_delta + 1
        at += 12 + length
    return found


def metadata_request(*, all_topics: bool = False) -> bytes:
    """Build a framed Metadata request, version 1, that names no topic, or means all of them."""
    return framed(_METADATA, 1, struct.pack(">i", -1 if all_topics else 0))


def topic_count(response: bytes) -> int:
    """Read how many topics there are from the body of a Metadata response, version 1."""
    (brokers,) = struct.unpack_from(">i", response)
    at = 4
    for _ in range(brokers):
        at += 4
        (host,) = struct.unpack_from(">h", response, at)
        at += 2 + host + 4
        (rack,) = struct.unpack_from(">h", response, at)
        at += 2 + max(rack, 0)
    return int(struct.unpack_from(">i", response, at + 4)[0])


def create_topics_request(names: list[str], *, partitions: int) -> bytes:
    """Build a framed CreateTopics request, version 4."""
    body = struct.pack(">i", len(names))
    for name in names:
        body += string(name) + struct.pack(">ihii", partitions, 1, 0, 0)
    return framed(_CREATE_TOPICS, 4, body + struct.pack(">ib", _TIMEOUT_MS, 0))


def create_topics_errors(response: bytes) -> list[int]:
    """Read the error codes from the body of a CreateTopics response, version 4."""
    _, count = struct.unpack_from(">ii", response)
    at, codes = 8, []
    for _ in range(count):
        (name,) = struct.unpack_from(">h", response, at)
        at += 2 + name
        code, message = struct.unpack_from(">hh", response, at)
        at += 4 + max(message, 0)
        codes.append(code)
    return codes
