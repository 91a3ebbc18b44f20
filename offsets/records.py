"""Records: the stored form of a committed offset.

Rule: one row per (group, topic, partition); each text in a key is preceded by its length, so that
no group or topic name can reach into the rows of another. The layout has a version byte.
Must not know: when rows are written.

Key:   `offset` 0x01, group length (u16), group, topic length (u16), topic, partition (u32)
       Of an open transaction: `pending-offset` 0x01, producer id (u64), and the rest as above.

Value: | offset | size | name                                              |
       |--------|------|---------------------------------------------------|
       | 0      | 1    | version of this layout, 1                         |
       | 1      | 8    | committed offset                                  |
       | 9      | 4    | leader epoch, -1 when the client sent none        |
       | 13     | 8    | time of the commit, ms since the epoch            |
       | 21     | 8    | time at which it expires, -1 for the usual rule   |
       | 29     | 16   | topic id                                          |
       | 45     | rest | the client's metadata, UTF-8                      |
"""

import struct
import uuid
from typing import Final

from kledger.offsets.offsets_state import CommittedOffset, TopicPartition

KEY_PREFIX: Final = b"offset\x01"
PENDING_PREFIX: Final = b"pending-offset\x01"
VALUE_VERSION: Final = 1

_LENGTH = struct.Struct(">H")
_PARTITION = struct.Struct(">I")
_PRODUCER = struct.Struct(">Q")
_VALUE = struct.Struct(">Bqiqq16s")


class UnknownOffsetVersion(ValueError):
    """A row was written by a newer program."""


def group_prefix(group: str) -> bytes:
    """Return the beginning of the keys of one group."""
    encoded = group.encode()
    return KEY_PREFIX + _LENGTH.pack(len(encoded)) + encoded


def encode_key(group: str, topic_partition: TopicPartition) -> bytes:
    """Return the key of one committed offset."""
    topic = topic_partition.topic.encode()
    return b"".join(
        (
            group_prefix(group),
            _LENGTH.pack(len(topic)),
            topic,
            _PARTITION.pack(topic_partition.partition),
        )
    )


def decode_key(key: bytes) -> tuple[str, TopicPartition]:
    """Return group and place of a key made by `encode_key`."""
    group, position = _text(key, len(KEY_PREFIX))
    topic, position = _text(key, position)
    return group, TopicPartition(topic, _PARTITION.unpack_from(key, position)[0])


def encode_pending_key(producer_id: int, group: str, topic_partition: TopicPartition) -> bytes:
    """Return the key of an offset that waits for the end of a transaction."""
    return PENDING_PREFIX + _PRODUCER.pack(producer_id) + encode_key(group, topic_partition)


def decode_pending_key(key: bytes) -> tuple[int, str, TopicPartition]:
    """Return producer id, group and place of a key made by `encode_pending_key`."""
    start = len(PENDING_PREFIX)
    (producer_id,) = _PRODUCER.unpack_from(key, start)
    return producer_id, *decode_key(key[start + _PRODUCER.size :])


def encode_value(committed: CommittedOffset) -> bytes:
    """Return the row of a committed offset."""
    head = _VALUE.pack(
        VALUE_VERSION,
        committed.offset,
        committed.leader_epoch,
        committed.commit_ms,
        committed.expire_ms,
        committed.topic_id.bytes,
    )
    return head + committed.metadata.encode()


def decode_value(value: bytes) -> CommittedOffset:
    """Return the committed offset in a row.

    Raises:
        UnknownOffsetVersion: the layout is not one of ours.
    """
    if value[0] != VALUE_VERSION:
        raise UnknownOffsetVersion(f"offset row of version {value[0]}, expected {VALUE_VERSION}")
    _, offset, leader_epoch, commit_ms, expire_ms, topic_id = _VALUE.unpack_from(value)
    return CommittedOffset(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=value[_VALUE.size :].decode(),
        commit_ms=commit_ms,
        expire_ms=expire_ms,
        topic_id=uuid.UUID(bytes=topic_id),
    )


def _text(key: bytes, position: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(key, position)
    start = position + _LENGTH.size
    return key[start : start + length].decode(), start + length
