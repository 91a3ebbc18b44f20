"""Records: the stored form of named topics, their groups and the positions of those.

Rule: one row per named topic, per group, and per (group, channel); a group's rows are written and
deleted together. The id of the topic is in every key, so that a topic that is created again begins
without them. The layout has a version byte.
Must not know: when rows are written.

==================================  ==============================================
key                                 row
==================================  ==============================================
`named-topic` 0x01 topic id         the options of a named topic
`named-group` 0x01 topic id name    a subscriber group
`named-channel` 0x01 topic id       where the group stands in a channel
  name length (u16) name channel
==================================  ==============================================
"""

from typing import Final, NamedTuple
from uuid import UUID

from kledger.ledger.record_table import GroupedRecordRows, RecordRows
from kledger.ledger.row_format import (
    FLAG,
    I64,
    TEXT16,
    TEXT_REST,
    U32,
    UUID16,
    RowFormat,
    RowKey,
    RowLayout,
)
from kledger.named_topics.channel_record import ChannelRecord
from kledger.named_topics.model import NamedTopicOptions

TOPIC_PREFIX: Final = b"named-topic\x01"
GROUP_PREFIX: Final = b"named-group\x01"
CHANNEL_PREFIX: Final = b"named-channel\x01"


class NamedTopicRecord(NamedTuple):
    """A named topic.

    Attributes:
        options: what it is.
        owns_log: it was created as a named topic, so its log is trimmed behind its groups; the log
            of a topic that was there before keeps what its own settings keep.
    """

    options: NamedTopicOptions
    owns_log: bool


class GroupKey(NamedTuple):
    """A group: the id of its topic, and its name."""

    topic_id: UUID
    name: str


class SubscriberGroupRecord(NamedTuple):
    """A subscriber group.

    Attributes:
        is_anonymous: it belongs to one subscriber, and ends with it.
        created_ms: wall time; later than the ids of all subscribers before.
        filter_name, converter_name: `module:attribute`; empty: none.
    """

    is_anonymous: bool
    created_ms: int
    filter_name: str
    converter_name: str


_TOPIC_KEYS = RowKey("named topic", TOPIC_PREFIX, topic_id=UUID16)
_GROUP_KEYS = RowKey("subscriber group", GROUP_PREFIX, topic_id=UUID16, name=TEXT_REST)
_CHANNEL_KEYS = RowKey(
    "channel of a subscriber group", CHANNEL_PREFIX, topic_id=UUID16, name=TEXT16, channel=U32
)
_TOPICS = RowFormat[NamedTopicRecord](
    "named topic",
    {
        1: RowLayout(
            NamedTopicRecord,
            options=RowLayout(
                NamedTopicOptions,
                retain_values=FLAG,
                element_expiry_ms=I64,
                subscriber_timeout_ms=I64,
                page_bytes=I64,
                max_unconsumed_bytes=I64,
                allow_unowned_commits=FLAG,
            ),
            owns_log=FLAG,
        )
    },
)
_GROUPS = RowFormat[SubscriberGroupRecord](
    "subscriber group",
    {
        1: RowLayout(
            SubscriberGroupRecord,
            is_anonymous=FLAG,
            created_ms=I64,
            filter_name=TEXT16,
            converter_name=TEXT16,
        )
    },
)
_CHANNELS = RowFormat[ChannelRecord](
    "channel of a subscriber group",
    {1: RowLayout(ChannelRecord, next_offset=I64, committed_offset=I64, revision=I64)},
)


def encode_topic_key(topic_id: UUID) -> bytes:
    """Return the key of a named topic."""
    return _TOPIC_KEYS.encode(topic_id)


def encode_topic(record: NamedTopicRecord) -> bytes:
    """Return the row of a named topic."""
    return _TOPICS.encode(record)


def decode_topic(key: bytes, row: bytes) -> tuple[UUID, NamedTopicRecord]:
    """Return a named topic and its id. Raises UnreadableRow."""
    (topic_id,) = _TOPIC_KEYS.decode(key)
    return topic_id, _TOPICS.decode(row, which=topic_id)


def encode_group_key(group: GroupKey) -> bytes:
    """Return the key of a group."""
    return _GROUP_KEYS.encode(*group)


def encode_group(record: SubscriberGroupRecord) -> bytes:
    """Return the row of a group."""
    return _GROUPS.encode(record)


def decode_group(key: bytes, row: bytes) -> tuple[GroupKey, SubscriberGroupRecord]:
    """Return a group and its key. Raises UnreadableRow."""
    group = GroupKey(*_GROUP_KEYS.decode(key))
    return group, _GROUPS.decode(row, which=group)


def encode_channel_key(group: GroupKey, channel: int) -> bytes:
    """Return the key of a channel of a group."""
    return _CHANNEL_KEYS.encode(*group, channel)


def encode_channel(record: ChannelRecord) -> bytes:
    """Return the row of a channel of a group."""
    return _CHANNELS.encode(record)


def decode_channel(key: bytes, row: bytes) -> tuple[GroupKey, int, ChannelRecord]:
    """Return a group, a channel and where the group stands in it. Raises UnreadableRow."""
    topic_id, name, channel = _CHANNEL_KEYS.decode(key)
    return GroupKey(topic_id, name), channel, _CHANNELS.decode(row, which=(name, channel))


TOPIC_ROWS: Final = RecordRows[UUID, NamedTopicRecord](
    prefix=TOPIC_PREFIX, encode_key=encode_topic_key, encode=encode_topic, decode=decode_topic
)
"""Named topics, by the id of their topic."""
GROUP_ROWS: Final = RecordRows[GroupKey, SubscriberGroupRecord](
    prefix=GROUP_PREFIX, encode_key=encode_group_key, encode=encode_group, decode=decode_group
)
"""Subscriber groups."""
CHANNEL_ROWS: Final = GroupedRecordRows[GroupKey, int, ChannelRecord](
    prefix=CHANNEL_PREFIX,
    encode_key=encode_channel_key,
    encode=encode_channel,
    decode=decode_channel,
)
"""Where each group stands, by group and channel."""
