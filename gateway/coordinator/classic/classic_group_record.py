"""Records: the stored form of a classic group.

Rule: one row per group, replaced as a whole; every text and byte string is preceded by its length.
The version byte selects the layout; another one under the same key is a group of the consumer
protocol (`consumer_group_record`). Committed offsets are rows of `offsets`, not of this record.
Must not know: when rows are written, what the bytes of members mean.

Key:   `group` 0x01, group id (UTF-8)

Value: version (u8, 1), time of the write (i64, ms since the epoch), generation (i32), protocol
       type, protocol name, leader, number of members (u32), and for each member: id, instance id,
       client id, client host, session timeout (i32), rebalance timeout (i32), assignment, number
       of protocols (u32), and for each its name and metadata.
       Strings and bytes: length (i32, -1 = null), content.
"""

from dataclasses import dataclass
from typing import Final

from kledger.gateway.coordinator.group_messages import Protocols
from kledger.ledger.row_format import (
    BYTES32,
    I32,
    I64,
    NULLABLE_TEXT32,
    TEXT32,
    TEXT_REST,
    RowFormat,
    RowKey,
    RowLayout,
    array,
)

GROUP_KEY_PREFIX: Final = b"group\x01"
CLASSIC_VALUE_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberRecord:
    """A member as it must be known again after a restart."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupRecord:
    """One generation of a group; without members it says that the group is empty.

    Attributes:
        saved_ms: wall time at which the record was written.
    """

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    members: tuple[ClassicMemberRecord, ...] = ()
    saved_ms: int = 0

    def size(self) -> int:
        """Return about how many bytes the row takes, without building it."""
        return 64 + sum(
            128
            + len(member.assignment)
            + sum(len(name) + len(metadata) for name, metadata in member.protocols)
            for member in self.members
        )


GROUP_KEYS: Final = RowKey("group", GROUP_KEY_PREFIX, group_id=TEXT_REST)
PROTOCOLS: Final = array(RowLayout(None, name=TEXT32, metadata=BYTES32))
"""The protocols of a member, in rows of either kind of group."""
_MEMBER = RowLayout(
    ClassicMemberRecord,
    member_id=TEXT32,
    instance_id=NULLABLE_TEXT32,
    client_id=TEXT32,
    client_host=TEXT32,
    session_timeout_ms=I32,
    rebalance_timeout_ms=I32,
    assignment=BYTES32,
    protocols=PROTOCOLS,
)
_GROUPS: RowFormat[ClassicGroupRecord] = RowFormat(
    "group",
    {
        CLASSIC_VALUE_VERSION: RowLayout(
            ClassicGroupRecord,
            saved_ms=I64,
            generation=I32,
            protocol_type=NULLABLE_TEXT32,
            protocol_name=NULLABLE_TEXT32,
            leader=NULLABLE_TEXT32,
            members=array(_MEMBER),
        )
    },
    given=("group_id",),
)


def encode_group_key(group_id: str) -> bytes:
    """Return the key of a group's row."""
    return GROUP_KEYS.encode(group_id)


def decode_group_key(key: bytes) -> str:
    """Return the group id in a key of `encode_group_key`."""
    (group_id,) = GROUP_KEYS.decode(key)
    return str(group_id)


def encode_classic_group(record: ClassicGroupRecord) -> bytes:
    """Return the row of a group."""
    return _GROUPS.encode(record)


def decode_classic_group(group_id: str, value: bytes) -> ClassicGroupRecord:
    """Return the group in a row.

    Raises:
        UnreadableRow: the layout is not one of ours, or the row is not whole.
    """
    return _GROUPS.decode(value, group_id)
