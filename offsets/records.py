"""Records: the stored form of committed and pending offsets.

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

from kledger.ledger.record_table import GroupedRecordRows
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
from kledger.offsets.offsets_state import CommittedOffset, PendingKey, TopicPartition

KEY_PREFIX: Final = b"offset\x01"
PENDING_PREFIX: Final = b"pending-offset\x01"
VALUE_VERSION: Final = 1

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


def encode_key(group: str, topic_partition: TopicPartition) -> bytes:
    """Return the key of one committed offset."""
    return _KEYS.encode(group, topic_partition.topic, topic_partition.partition)


def decode_key(key: bytes) -> tuple[str, TopicPartition]:
    """Return group and partition of a key made by `encode_key`."""
    group, topic, partition = _KEYS.decode(key)
    return group, TopicPartition(topic, partition)


def encode_pending_key(group: str, key: PendingKey) -> bytes:
    """Return the key of an offset that an open transaction would commit."""
    producer_id, (topic, partition) = key
    return _PENDING_KEYS.encode(producer_id, group, topic, partition)


def decode_pending_key(key: bytes) -> tuple[str, PendingKey]:
    """Return group, producer id and partition of a key made by `encode_pending_key`."""
    producer_id, group, topic, partition = _PENDING_KEYS.decode(key)
    return group, (producer_id, TopicPartition(topic, partition))


def encode_value(committed: CommittedOffset) -> bytes:
    """Return the row of a committed offset."""
    return _VALUES.encode(committed)


def decode_value(value: bytes, *, key: bytes | None = None) -> CommittedOffset:
    """Return the committed offset in a row; `key` names the row in an error.

    Raises:
        UnreadableRow: the layout is not one of ours, or the row is not whole.
    """
    return _VALUES.decode(value, which=key)


def _decode_committed_row(key: bytes, row: bytes) -> tuple[str, TopicPartition, CommittedOffset]:
    group, topic_partition = decode_key(key)
    return group, topic_partition, decode_value(row, key=key)


def _decode_pending_row(key: bytes, row: bytes) -> tuple[str, PendingKey, CommittedOffset]:
    group, pending_key = decode_pending_key(key)
    return group, pending_key, decode_value(row, key=key)


def _decode_group(key: bytes) -> str:
    group, _ = decode_key(key)
    return group


def _decode_pending_group(key: bytes) -> str:
    group, _ = decode_pending_key(key)
    return group


COMMITTED_ROWS: Final = GroupedRecordRows[str, TopicPartition, CommittedOffset](
    prefix=KEY_PREFIX,
    encode_key=encode_key,
    encode=encode_value,
    decode=_decode_committed_row,
    decode_group=_decode_group,
)
"""Committed offsets, by group and partition."""
PENDING_ROWS: Final = GroupedRecordRows[str, PendingKey, CommittedOffset](
    prefix=PENDING_PREFIX,
    encode_key=encode_pending_key,
    encode=encode_value,
    decode=_decode_pending_row,
    decode_group=_decode_pending_group,
)
"""Offsets that open transactions would commit, by group, and producer id and partition in it."""
