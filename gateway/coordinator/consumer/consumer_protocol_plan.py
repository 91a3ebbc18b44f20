"""Consumer protocol plan: subscriptions and assignments in the bytes of classic members.

Rule: pure and distrustful; bytes that are something else give None. Groups of the consumer protocol
read and write them for their classic members. Groups of the classic protocol pass them on unread;
only the expiry and deletion of their offsets ask which topics are in use.
Must not know: groups, epochs.

ConsumerProtocolSubscription: version (i16), topics, user data (bytes), and from version 1 on the
partitions that the member owns. Assignment: version (i16), partitions by topic, user data (bytes,
null). An array is its length (i32) and its items; a topic's partitions are its name, their number
(i32) and their numbers (i32 each); a name has its length (i16) before it, bytes have theirs (i32,
-1 = null).
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kledger.gateway.coordinator.consumer_messages import (
    Partitions,
    TopicCatalog,
    TopicIdPartition,
    TopicMetadata,
)

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers in JoinGroup."""

FIRST_VERSION_WITH_OWNED: Final = 1

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class ConsumerProtocolSubscription:
    """The topics that a member subscribes to, and the partitions that it owns, by topic name."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[tuple[str, int], ...]


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """Return the subscription in a member's metadata, None if it is something else."""
    reader = _Reader(metadata)
    try:
        version, topics = reader.version_and_topics()
        reader.skip_bytes()
        owned: tuple[tuple[str, int], ...] = ()
        if version >= FIRST_VERSION_WITH_OWNED and not reader.is_at_end:
            owned = reader.partitions()
    except (struct.error, ValueError):
        return None
    return ConsumerProtocolSubscription(version, topics, owned)


def read_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Return the topics of a subscription, None if it is something else.

    What follows the topics is not read: some clients claim a version without its fields.
    """
    try:
        _, topics = _Reader(metadata).version_and_topics()
    except (struct.error, ValueError):
        return None
    return topics


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions together, or None if one cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        found = read_topics(subscription)
        if found is None:
            return None
        topics.update(found)
    return frozenset(topics)


def read_assignment(content: bytes) -> tuple[tuple[str, int], ...] | None:
    """Return the partitions in an assignment, None if it is something else; no bytes mean none."""
    if not content:
        return ()
    reader = _Reader(content)
    try:
        reader.number(_I16)
        return reader.partitions()
    except (struct.error, ValueError):
        return None


def write_assignment(
    partitions: Partitions, version: int, topics: Mapping[str, TopicMetadata]
) -> bytes:
    """Return an assignment in bytes.

    Args:
        partitions: of the member.
        version: of the format, as the member's subscription has it.
        topics: by name, the topics that the member subscribes to; others are left out.
    """
    by_name: dict[str, list[int]] = {}
    names = {topic_metadata.topic_id: name for name, topic_metadata in topics.items()}
    for topic_id, partition in sorted(partitions):
        if topic_id in names:
            by_name.setdefault(names[topic_id], []).append(partition)
    parts = [_I16.pack(version), _I32.pack(len(by_name))]
    for name, numbers in by_name.items():
        encoded = name.encode()
        parts += (_I16.pack(len(encoded)), encoded, _I32.pack(len(numbers)))
        parts += map(_I32.pack, numbers)
    parts.append(_I32.pack(-1))
    return b"".join(parts)


def with_topic_ids(partitions: Iterable[tuple[str, int]], catalog: TopicCatalog) -> Partitions:
    """Return partitions by the ids of their topics; those that do not exist are left out."""
    return frozenset(
        TopicIdPartition(topic_metadata.topic_id, partition)
        for name, partition in partitions
        if (topic_metadata := catalog.find(name)) is not None
        and 0 <= partition < topic_metadata.partition_count
    )


class _Reader:
    """Reads the bytes of a client; `struct.error` or `ValueError` if they are something else."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._content)

    def number(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self._content, self._position)
        self._position += layout.size
        return int(value)

    def version_and_topics(self) -> tuple[int, tuple[str, ...]]:
        """Read the fields with which subscriptions of all versions begin."""
        version = self.number(_I16)
        if version < 0:
            raise ValueError(f"version {version}")
        return version, tuple(self.name() for _ in range(self.count()))

    def count(self) -> int:
        """Read a length that must fit into what is left."""
        count = self.number(_I32)
        if not 0 <= count <= len(self._content) - self._position:
            raise ValueError(f"{count} items in {len(self._content)} bytes")
        return count

    def name(self) -> str:
        length = self.number(_I16)
        start = self._position
        self._position = start + length
        if length < 0 or self._position > len(self._content):
            raise ValueError(f"a name of {length} bytes")
        return self._content[start : self._position].decode()

    def skip_bytes(self) -> None:
        length = self.number(_I32)
        self._position += max(length, 0)
        if length < -1 or self._position > len(self._content):
            raise ValueError(f"{length} bytes")

    def partitions(self) -> tuple[tuple[str, int], ...]:
        found: list[tuple[str, int]] = []
        for _ in range(self.count()):
            name = self.name()
            found += ((name, self.number(_I32)) for _ in range(self.count()))
        return tuple(found)
