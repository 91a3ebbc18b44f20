"""Group messages: requests to a group and their results, free of API versions.

Rule: results are frozen values; commands do not change once the coordinator has filled them in.
Bytes of members and assignors pass through unread.
Must not know: the wire's message classes, the state that handles them.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from kledger.gateway.wire.error_codes import ErrorCode

NO_GENERATION: Final = -1
UNKNOWN_MEMBER: Final = ""

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names and metadata, in the member's order of preference."""


@dataclass(slots=True, kw_only=True)
class JoinCommand:
    """A request to be in the next generation.

    Attributes:
        waiter: the waiter to answer; filled in by the coordinator.
        new_member_id: the id to use when `member_id` is empty; filled in by the coordinator.
        requires_known_id: from JoinGroup 4 on a dynamic member must join again with its id.
        can_skip_assignment: from JoinGroup 9 on the answer may ask a leader not to assign.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_id: bool = False
    can_skip_assignment: bool = False
    waiter: int = 0
    new_member_id: str = ""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member in the answer to the leader's join."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """The answer to a join; `members` is filled for the leader alone."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = UNKNOWN_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(slots=True, kw_only=True)
class SyncCommand:
    """A request for an assignment; the leader's carries the assignments of all members.

    Attributes:
        waiter: the waiter to answer; filled in by the coordinator.
        protocol_type: None before SyncGroup 5; checked when given.
        protocol_name: same.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]
    waiter: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The answer to a sync."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class RequestingMember:
    """The claimed sender of a heartbeat or a commit, with its generation or member epoch.

    Attributes:
        uses_member_epoch: whether the request could carry a member epoch (OffsetCommit 9 on).
    """

    member_id: str
    generation: int
    instance_id: str | None = None
    uses_member_epoch: bool = False


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """A member to remove; an empty member id with an instance id is an administrator's removal."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """One member as tools see it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group as tools see it; protocol name and metadata only while it is stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"
