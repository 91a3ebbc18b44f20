"""Wire: the few Kafka requests that the raw load makes by hand.

Rule: old, plain versions that every server of today takes; nothing here is shared with the server
under test, whose own codec must not be what measures it.
"""

from __future__ import annotations

import struct

import crc32c

_PRODUCE, _FETCH, _METADATA, _API_VERSIONS = 0, 1, 3, 18
_CLIENT_ID = b"raw"
_BATCH_TAIL = struct.Struct(">hiqqqhii")
_BATCH_HEAD = struct.Struct(">qiibI")
CORRELATION = slice(8, 12)


def varint(value: int) -> bytes:
    """Encode a signed number in zigzag form."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def record_batch(values: list[bytes], timestamp_ms: int) -> bytes:
    """Build a record batch of format 2 without keys, headers or compression."""
    records = b"".join(_record(index, value) for index, value in enumerate(values))
    last = len(values) - 1
    tail = _BATCH_TAIL.pack(0, last, timestamp_ms, timestamp_ms, -1, -1, -1, len(values)) + records
    return _BATCH_HEAD.pack(0, len(tail) + 9, 0, 2, crc32c.crc32c(tail)) + tail


def _record(delta: int, value: bytes) -> bytes:
    body = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def _framed(key: int, version: int, body: bytes) -> bytes:
    """Put a header of version 1 and the size in front of a body."""
    header = struct.pack(f">hhih{len(_CLIENT_ID)}s", key, version, 0, len(_CLIENT_ID), _CLIENT_ID)
    return struct.pack(">i", len(header) + len(body)) + header + body


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def produce_request(topic: str, partition: int, batch: bytes, *, acks: int) -> bytes:
    """Build a framed Produce request, version 7, of one batch."""
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + _string(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    return _framed(_PRODUCE, 7, body)


def produce_error(response: bytes | memoryview) -> int:
    """Read the error code of the one partition from an unframed Produce response, version 7."""
    (length,) = struct.unpack_from(">h", response, 8)
    return int(struct.unpack_from(">h", response, 8 + 2 + length + 4 + 4)[0])


def fetch_request(places: dict[str, list[int]], *, wait_ms: int) -> bytes:
    """Build a framed Fetch request, version 11, at offset 0 of every place, without a session."""
    body = struct.pack(">iiiibiii", -1, wait_ms, 1, 50 << 20, 0, 0, -1, len(places))
    for topic, partitions in places.items():
        body += _string(topic) + struct.pack(">i", len(partitions))
        body += b"".join(struct.pack(">iiqqi", each, -1, 0, -1, 1 << 20) for each in partitions)
    return _framed(_FETCH, 11, body + struct.pack(">i", 0) + _string(""))


def metadata_request() -> bytes:
    """Build a framed Metadata request, version 1, that names no topic."""
    return _framed(_METADATA, 1, struct.pack(">i", 0))
