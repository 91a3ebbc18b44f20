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

from typing import Final

from kledger.ledger.row_format import (
    I32,
    I64,
    TEXT16,
    TEXT_REST,
    U32,
    U64,
    UUID16,
    RowFormat,
    RowKey,
    RowLayout,
    literal,
)
from kledger.offsets.offsets_state import CommittedOffset, TopicPartition

KEY_PREFIX: Final = b"offset\x01"
PENDING_PREFIX: Final = b"pending-offset\x01"
VALUE_VERSION: Final = 1

_GROUPS = RowKey("offset", KEY_PREFIX, group=TEXT16)
_KEYS = RowKey("offset", KEY_PREFIX, group=TEXT16, topic=TEXT16, partition=U32)
_PENDING_KEYS = RowKey(
    "pending offset",
    PENDING_PREFIX,
    producer_id=U64,
    prefix_again=literal(KEY_PREFIX),
    group=TEXT16,
    topic=TEXT16,
    partition=U32,
)
_VALUES = RowFormat[CommittedOffset](
    "offset",
    {
        VALUE_VERSION: RowLayout(
            CommittedOffset,
            offset=I64,
            leader_epoch=I32,
            commit_ms=I64,
            expire_ms=I64,
            topic_id=UUID16,
            metadata=TEXT_REST,
        )
    },
)


def group_prefix(group: str) -> bytes:
    """Return the beginning of the keys of one group."""
    return _GROUPS.encode(group)


def encode_key(group: str, topic_partition: TopicPartition) -> bytes:
    """Return the key of one committed offset."""
    return _KEYS.encode(group, topic_partition.topic, topic_partition.partition)


def decode_key(key: bytes) -> tuple[str, TopicPartition]:
    """Return group and partition of a key made by `encode_key`."""
    group, topic, partition = _KEYS.decode(key)
    return group, TopicPartition(topic, partition)


def encode_pending_key(producer_id: int, group: str, topic_partition: TopicPartition) -> bytes:
    """Return the key of an offset that an open transaction would commit."""
    return _PENDING_KEYS.encode(producer_id, group, *topic_partition)


def decode_pending_key(key: bytes) -> tuple[int, str, TopicPartition]:
    """Return producer id, group and partition of a key made by `encode_pending_key`."""
    producer_id, group, topic, partition = _PENDING_KEYS.decode(key)
    return producer_id, group, TopicPartition(topic, partition)


def encode_value(committed: CommittedOffset) -> bytes:
    """Return the row of a committed offset."""
    return _VALUES.encode(committed)


def decode_value(value: bytes, *, key: bytes | None = None) -> CommittedOffset:
    """Return the committed offset in a row; `key` names the row in an error.

    Raises:
        UnreadableRow: the layout is not one of ours, or the row is not whole.
    """
    return _VALUES.decode(value, which=key)
