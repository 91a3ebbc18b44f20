"""Consumer records: the stored form of a group of the consumer protocol.

Rule: one row per group, replaced as a whole, under the key that the group would have as a classic
one: so a group that changes its protocol is one or the other at every moment.
Must not know: when rows are written, how members move.

Value: version (u8, 2), time of the write (i64, ms since the epoch), epoch (i32), epoch of the
       target assignment (i32), assignor, number of topics (u32), and for each: name, id (16 bytes),
       number of partitions (i32); number of members (u32), and for each: id, instance id, rack,
       client id, client host, rebalance timeout (i32), epoch (i32), epoch before (i32), state
       (i32), classic part, expression, assignor, number of names (u32) and names, and then three
       sets of partitions: assigned, being revoked, target. A set: number of topics (u32), and for
       each its id, number of partitions (u32), and their numbers (i32 each). A classic part:
       session timeout (i32, -1 = there is no such part), number of protocols (u32), and for each
       its name and metadata.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from kledger.gateway.coordinator.consumer.consumer_member_state import (
    ClassicMemberMetadata,
    ConsumerMember,
    MemberState,
)
from kledger.gateway.coordinator.consumer_messages import (
    Partitions,
    TopicIdPartition,
    TopicMetadata,
)
from kledger.gateway.coordinator.row_bytes import (
    COUNT,
    RowReader,
    UnknownGroupRowVersion,
    put_bytes,
    put_text,
)

CONSUMER_VALUE_VERSION: Final = 2

_HEAD = struct.Struct(">Bqii")
_NUMBER = struct.Struct(">i")
_STANDING = struct.Struct(">iii")
_ID_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRecord:
    """One group as it must be known again after a restart."""

    group_id: str
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    members: tuple[ConsumerMember, ...] = ()


def is_consumer_group_row(value: bytes) -> bool:
    """Whether a group's row is one of these."""
    return value[:1] == bytes([CONSUMER_VALUE_VERSION])


def encode_consumer_group(record: ConsumerGroupRecord, saved_ms: int) -> bytes:
    """Return the row of a group, written at wall time `saved_ms`."""
    parts = [_HEAD.pack(CONSUMER_VALUE_VERSION, saved_ms, record.epoch, record.assignment_epoch)]
    put_text(parts, record.assignor)
    parts.append(COUNT.pack(len(record.topics)))
    for topic_metadata in record.topics.values():
        put_text(parts, topic_metadata.name)
        parts += (topic_metadata.topic_id.bytes, _NUMBER.pack(topic_metadata.partition_count))
    parts.append(COUNT.pack(len(record.members)))
    for member in record.members:
        _put_member(parts, member)
    return b"".join(parts)


def decode_consumer_group(group_id: str, value: bytes) -> tuple[ConsumerGroupRecord, int]:
    """Return the group in a row and the wall time at which it was written.

    Raises:
        UnknownGroupRowVersion: the layout is not this one.
    """
    version, saved_ms, epoch, assignment_epoch = _HEAD.unpack_from(value)
    if version != CONSUMER_VALUE_VERSION:
        raise UnknownGroupRowVersion(
            f"group row of version {version}, expected {CONSUMER_VALUE_VERSION}"
        )
    row = RowReader(value, _HEAD.size)
    assignor = row.text() or ""
    facts = [_fact(row) for _ in range(_count(row))]
    record = ConsumerGroupRecord(
        group_id=group_id,
        epoch=epoch,
        assignment_epoch=assignment_epoch,
        assignor=assignor,
        topics={topic_metadata.name: topic_metadata for topic_metadata in facts},
        members=tuple(_member(row) for _ in range(_count(row))),
    )
    return record, saved_ms


def _put_member(parts: list[bytes], member: ConsumerMember) -> None:
    put_text(parts, member.member_id)
    for text in (member.instance_id, member.rack_id, member.client_id, member.client_host):
        put_text(parts, text)
    parts.append(_NUMBER.pack(member.rebalance_timeout_ms))
    parts.append(_STANDING.pack(member.epoch, member.previous_epoch, member.state))
    _put_classic(parts, member.classic)
    put_text(parts, member.topic_regex)
    put_text(parts, member.server_assignor)
    parts.append(COUNT.pack(len(member.topic_names)))
    for name in member.topic_names:
        put_text(parts, name)
    for partitions in (member.assigned, member.revoking, member.target):
        _put_partitions(parts, partitions)


def _put_classic(parts: list[bytes], classic: ClassicMemberMetadata | None) -> None:
    if classic is None:
        parts.append(_NUMBER.pack(-1))
        return
    parts += (_NUMBER.pack(classic.session_timeout_ms), COUNT.pack(len(classic.protocols)))
    for name, metadata in classic.protocols:
        put_text(parts, name)
        put_bytes(parts, metadata)


def _classic(row: RowReader) -> ClassicMemberMetadata | None:
    (session_timeout_ms,) = row.take(_NUMBER)
    if session_timeout_ms < 0:
        return None
    protocols = tuple((row.text() or "", row.content() or b"") for _ in range(_count(row)))
    return ClassicMemberMetadata(session_timeout_ms, protocols)


def _put_partitions(parts: list[bytes], partitions: Iterable[TopicIdPartition]) -> None:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, partition in partitions:
        by_topic.setdefault(topic_id, []).append(partition)
    parts.append(COUNT.pack(len(by_topic)))
    for topic_id, numbers in by_topic.items():
        numbers.sort()
        parts += (topic_id.bytes, COUNT.pack(len(numbers)))
        parts.append(struct.pack(f">{len(numbers)}i", *numbers))


def _count(row: RowReader) -> int:
    return row.take(COUNT)[0]


def _fact(row: RowReader) -> TopicMetadata:
    name = row.text() or ""
    topic_id = UUID(bytes=row.raw(_ID_SIZE))
    return TopicMetadata(name, topic_id, row.take(_NUMBER)[0])


def _member(row: RowReader) -> ConsumerMember:
    member_id, instance_id, rack_id = row.text(), row.text(), row.text()
    client_id, client_host = row.text(), row.text()
    (rebalance_timeout_ms,) = row.take(_NUMBER)
    epoch, previous_epoch, state = row.take(_STANDING)
    classic = _classic(row)
    regex, assignor = row.text(), row.text()
    names = tuple(row.text() or "" for _ in range(_count(row)))
    return ConsumerMember(
        member_id=member_id or "",
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id or "",
        client_host=client_host or "",
        rebalance_timeout_ms=rebalance_timeout_ms,
        topic_names=names,
        topic_regex=regex or "",
        server_assignor=assignor,
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=MemberState(state),
        classic=classic,
        assigned=_partitions(row),
        revoking=_partitions(row),
        target=_partitions(row),
    )


def _partitions(row: RowReader) -> Partitions:
    found: list[TopicIdPartition] = []
    for _ in range(_count(row)):
        topic_id = UUID(bytes=row.raw(_ID_SIZE))
        layout = struct.Struct(f">{_count(row)}i")
        found += (TopicIdPartition(topic_id, partition) for partition in row.take(layout))
    return frozenset(found)
