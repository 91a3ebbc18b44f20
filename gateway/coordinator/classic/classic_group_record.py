"""Records: the stored form of a classic group.

Rule: one row per group, replaced as a whole; every text and byte string is preceded by its length.
The version byte tells the layout; another one under the same key is a group of the consumer
protocol (`consumer_group_record`). Committed offsets are rows of `offsets`, not of this record.
Must not know: when rows are written, what the bytes of members mean.

Key:   `group` 0x01, group id (UTF-8)

Value: version (u8, 1), time of the write (i64, ms since the epoch), generation (i32), protocol
       type, protocol name, leader, number of members (u32), and for each member: id, instance id,
       client id, client host, session timeout (i32), rebalance timeout (i32), assignment, number
       of protocols (u32), and for each its name and metadata.
       Strings and bytes: length (i32, -1 = null), content.
"""

import struct
from dataclasses import dataclass
from typing import Final

from kledger.gateway.coordinator.group_messages import Protocols
from kledger.gateway.coordinator.row_bytes import (
    COUNT,
    RowReader,
    UnknownGroupRowVersion,
    put_bytes,
    put_text,
)

GROUP_KEY_PREFIX: Final = b"group\x01"
CLASSIC_VALUE_VERSION: Final = 1

_HEAD = struct.Struct(">Bqi")
_TIMEOUTS = struct.Struct(">ii")


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
    """One generation of a group; without members it says that the group is empty."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    members: tuple[ClassicMemberRecord, ...] = ()

    def size(self) -> int:
        """Return about how many bytes the row takes, without building it."""
        return 64 + sum(
            128
            + len(member.assignment)
            + sum(len(name) + len(metadata) for name, metadata in member.protocols)
            for member in self.members
        )


def encode_group_key(group_id: str) -> bytes:
    """Return the key of a group's row."""
    return GROUP_KEY_PREFIX + group_id.encode()


def decode_group_key(key: bytes) -> str:
    """Return the group id in a key of `encode_group_key`."""
    return key[len(GROUP_KEY_PREFIX) :].decode()


def encode_classic_group(record: ClassicGroupRecord, saved_ms: int) -> bytes:
    """Return the row of a group, written at wall time `saved_ms`."""
    parts = [_HEAD.pack(CLASSIC_VALUE_VERSION, saved_ms, record.generation)]
    for text in (record.protocol_type, record.protocol_name, record.leader):
        put_text(parts, text)
    parts.append(COUNT.pack(len(record.members)))
    for member in record.members:
        _put_member(parts, member)
    return b"".join(parts)


def decode_classic_group(group_id: str, value: bytes) -> tuple[ClassicGroupRecord, int]:
    """Return the group in a row and the wall time at which it was written.

    Raises:
        UnknownGroupRowVersion: the layout is not one of ours.
    """
    version, saved_ms, generation = _HEAD.unpack_from(value)
    if version != CLASSIC_VALUE_VERSION:
        raise UnknownGroupRowVersion(
            f"group row of version {version}, expected {CLASSIC_VALUE_VERSION}"
        )
    row = RowReader(value, _HEAD.size)
    protocol_type, protocol_name, leader = row.text(), row.text(), row.text()
    member_count: int = row.take(COUNT)[0]
    members = tuple(_member(row) for _ in range(member_count))
    record = ClassicGroupRecord(
        group_id=group_id,
        generation=generation,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        leader=leader,
        members=members,
    )
    return record, saved_ms


def _put_member(parts: list[bytes], member: ClassicMemberRecord) -> None:
    for text in (member.member_id, member.instance_id, member.client_id, member.client_host):
        put_text(parts, text)
    parts.append(_TIMEOUTS.pack(member.session_timeout_ms, member.rebalance_timeout_ms))
    put_bytes(parts, member.assignment)
    parts.append(COUNT.pack(len(member.protocols)))
    for name, metadata in member.protocols:
        put_text(parts, name)
        put_bytes(parts, metadata)


def _member(row: RowReader) -> ClassicMemberRecord:
    member_id, instance_id = row.text(), row.text()
    client_id, client_host = row.text(), row.text()
    session_timeout_ms, rebalance_timeout_ms = row.take(_TIMEOUTS)
    assignment = row.content() or b""
    protocol_count: int = row.take(COUNT)[0]
    protocols = tuple((row.text() or "", row.content() or b"") for _ in range(protocol_count))
    return ClassicMemberRecord(
        member_id=member_id or "",
        instance_id=instance_id,
        client_id=client_id or "",
        client_host=client_host or "",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocols=protocols,
        assignment=assignment,
    )
