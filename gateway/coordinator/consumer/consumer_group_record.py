"""Consumer records: a group of the consumer protocol as it is stored and decided on.

Rule: a value. One row per group, replaced as a whole, under the key that the group would have as a
classic one: so a group that changes its protocol is one or the other at every moment.
Must not know: when rows are written, how members move.

Value: version (u8, 3), time of the write (i64, ms since the epoch), epoch (i32), epoch of the
       target assignment (i32), assignor, number of topics (u32), and for each: name, id (16 bytes),
       number of partitions (i32); number of members (u32), and for each: id, instance id, rack,
       client id, client host, rebalance timeout (i32), epoch (i32), epoch before (i32), state
       (i32), classic part, expression, assignor, number of names (u32) and names, three sets of
       partitions: assigned, being revoked, target; name and type of the principal. A set: number
       of topics (u32), and for each its id, number of partitions (u32), and their numbers (i32
       each). A classic part: session timeout (i32, -1 = there is no such part), number of protocols
       (u32), and for each its name and metadata.

Version 2 has no principals.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from kledger.gateway.coordinator.classic.classic_group_record import PROTOCOLS
from kledger.gateway.coordinator.consumer.consumer_member_state import (
    ClassicMemberMetadata,
    ConsumerMember,
    ConsumerRoster,
    MemberState,
)
from kledger.gateway.coordinator.consumer_messages import (
    Partitions,
    TopicIdPartition,
    TopicMetadata,
)
from kledger.ledger.row_format import (
    I32,
    I64,
    NULLABLE_TEXT32,
    TEXT32,
    UUID16,
    RowField,
    RowFormat,
    RowLayout,
    array,
    converted,
    optional,
)
from kledger.security.principal import Principal

CONSUMER_VALUE_VERSION: Final = 3
VERSION_WITHOUT_PRINCIPALS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRecord:
    """One group.

    Attributes:
        epoch: of the group.
        assignment_epoch: the epoch for which the members' targets were computed.
        topics: those that members subscribe to, by name.
        saved_ms: wall time at which the record was written.
    """

    group_id: str
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    members: ConsumerRoster = field(default_factory=ConsumerRoster)
    saved_ms: int = 0


def _numbers_by_topic(partitions: Iterable[TopicIdPartition]) -> list[tuple[UUID, list[int]]]:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, partition in partitions:
        by_topic.setdefault(topic_id, []).append(partition)
    return [(topic_id, sorted(numbers)) for topic_id, numbers in by_topic.items()]


def _partitions(numbers_by_topic: Iterable[tuple[UUID, list[int]]]) -> Partitions:
    return frozenset(
        TopicIdPartition(topic_id, number)
        for topic_id, numbers in numbers_by_topic
        for number in numbers
    )


_PARTITIONS = converted(
    array(RowLayout(None, topic_id=UUID16, numbers=array(I32))), _numbers_by_topic, _partitions
)
_TOPICS = array(
    RowLayout(TopicMetadata, name=TEXT32, topic_id=UUID16, partition_count=I32),
    order=dict.values,
    make=lambda topics: {topic.name: topic for topic in topics},
)
_CLASSIC = RowLayout(
    ClassicMemberMetadata,
    session_timeout_ms=I32,
    protocols=PROTOCOLS,
)
_MEMBER: Final[Mapping[str, RowField]] = {
    "member_id": TEXT32,
    "instance_id": NULLABLE_TEXT32,
    "rack_id": NULLABLE_TEXT32,
    "client_id": TEXT32,
    "client_host": TEXT32,
    "rebalance_timeout_ms": I32,
    "epoch": I32,
    "previous_epoch": I32,
    "state": converted(I32, int, MemberState),
    "classic": optional(_CLASSIC),
    "topic_regex": TEXT32,
    "server_assignor": NULLABLE_TEXT32,
    "topic_names": array(TEXT32),
    "assigned": _PARTITIONS,
    "revoking": _PARTITIONS,
    "target": _PARTITIONS,
}
_PRINCIPAL = RowLayout(Principal, name=TEXT32, principal_type=TEXT32)


def _group_layout(member: RowLayout) -> RowLayout:
    return RowLayout(
        ConsumerGroupRecord,
        saved_ms=I64,
        epoch=I32,
        assignment_epoch=I32,
        assignor=TEXT32,
        topics=_TOPICS,
        members=array(member, make=ConsumerRoster),
    )


_GROUPS: RowFormat[ConsumerGroupRecord] = RowFormat(
    "group",
    {
        VERSION_WITHOUT_PRINCIPALS: _group_layout(RowLayout(ConsumerMember, **_MEMBER)),
        CONSUMER_VALUE_VERSION: _group_layout(
            RowLayout(ConsumerMember, **_MEMBER, principal=_PRINCIPAL)
        ),
    },
    given=("group_id",),
)


def is_consumer_group_row(value: bytes) -> bool:
    """Whether a group's row is one of these."""
    return bool(value) and value[0] in _GROUPS.versions


def encode_consumer_group(record: ConsumerGroupRecord) -> bytes:
    """Return the row of a group."""
    return _GROUPS.encode(record)


def decode_consumer_group(group_id: str, value: bytes) -> ConsumerGroupRecord:
    """Return the group in a row.

    Raises:
        UnreadableRow: the layout is not this one, or the row is not whole.
    """
    return _GROUPS.decode(value, group_id)
