"""Classic member state: one member of a classic group, and the roster of all of them.

Rule: the roster keeps its counts (members that wait for a join, supporters of a protocol) true
after every call, so that no decision iterates over all members.
Must not know: states of the group, effects, time other than the deadlines given to it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kledger.gateway.coordinator.classic.classic_group_record import ClassicMemberRecord
from kledger.gateway.coordinator.group_messages import JoinedMember, Protocols


@dataclass(slots=True)
class ClassicMember:
    """One member.

    Attributes:
        has_own_id: whether the client has received its id, so that it can reconnect with it.
        is_new: true until its first generation; until then it waits without a session.
        join_waiter: the JoinGroup request that waits, if any.
        sync_waiter: the SyncGroup request that waits, if any.
        session_deadline_ms: when the session ends unless a request moves it.
        timer_ms: when the timer fires that checks the deadline. A heartbeat only moves the
            deadline; when the timer fires before that, it is set again. So a heartbeat costs one
            assignment.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    has_own_id: bool = True
    is_new: bool = False
    join_waiter: int | None = None
    sync_waiter: int | None = None
    session_deadline_ms: int = 0
    timer_ms: int = 0

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id and may be replaced under it."""
        return self.instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Whether a request of it is unanswered; its session cannot end meanwhile."""
        return self.join_waiter is not None or self.sync_waiter is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for that protocol; empty if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""


class ClassicRoster:
    """The members of one group, the member ids that were assigned but not used, and the leader.

    Attributes:
        members: by member id, oldest first.
        static_ids: member ids by instance id.
        pending: assigned ids that have not joined yet (KIP-394).
        pending_sync: ids of members that have not asked for their assignment yet.
    """

    __slots__ = (
        "_support",
        "_waiting_join",
        "leader_id",
        "members",
        "pending",
        "pending_sync",
        "static_ids",
    )

    def __init__(self) -> None:
        self.members: dict[str, ClassicMember] = {}
        self.static_ids: dict[str, str] = {}
        self.pending: set[str] = set()
        self.pending_sync: set[str] = set()
        self.leader_id: str | None = None
        self._waiting_join = 0
        self._support: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    @property
    def waiting_join_count(self) -> int:
        """How many members wait for the answer to a join."""
        return self._waiting_join

    @property
    def has_all_joined(self) -> bool:
        """Whether every member has joined and every assigned id was used."""
        return self._waiting_join == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members; 0 without members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def add(self, member: ClassicMember) -> None:
        """Add a member; the first one leads."""
        assert member.member_id not in self.members, f"{member.member_id} is a member"
        self.pending.discard(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self.static_ids, f"{member.instance_id} is taken"
            self.static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._count(member, 1)

    def remove(self, member_id: str) -> ClassicMember:
        """Remove a member; if it was the leader, the oldest one left leads."""
        member = self.members.pop(member_id)
        self.pending_sync.discard(member_id)
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self._count(member, -1)
        return member

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Give a static member that rejoined its new id; it leads if the old id did."""
        assert member.instance_id is not None, "only a static member can be replaced"
        old_id = member.member_id
        del self.members[old_id]
        member.member_id = member_id
        self.members[member_id] = member
        self.static_ids[member.instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(member_id)

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        """Replace the protocols that a member supports."""
        if protocols == member.protocols:
            return
        self._count_support(member, -1)
        member.protocols = protocols
        self._count_support(member, 1)

    def set_join_waiter(self, member: ClassicMember, waiter: int | None) -> int | None:
        """Set the request that waits for the join, or None; return the previous one."""
        before = member.join_waiter
        member.join_waiter = waiter
        self._waiting_join += (waiter is not None) - (before is not None)
        return before

    def absent(self) -> list[ClassicMember]:
        """Return the members that have not asked to join."""
        if self._waiting_join == len(self.members):
            return []
        return [member for member in self.members.values() if member.join_waiter is None]

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader; return false if there is none."""
        if self.leader_id is not None and self.members[self.leader_id].join_waiter is not None:
            return True
        for member in self.members.values():
            if member.join_waiter is not None:
                self.leader_id = member.member_id
                return True
        return False

    def joined(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """Return the members as the leader sees them."""
        return tuple(
            JoinedMember(each.member_id, each.instance_id, each.metadata(protocol_name))
            for each in self.members.values()
        )

    def supports_any(self, names: Iterable[str]) -> bool:
        """Whether one of the protocols is supported by every member."""
        return any(self._support[name] == len(self.members) for name in names)

    def choose_protocol(self) -> str:
        """Return the protocol of the next generation.

        Every member votes for the first of its protocols that all support. A tie is decided by
        the oldest member's vote, so that the choice is repeatable.
        """
        count = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            for name, _ in member.protocols:
                if self._support[name] == count:
                    votes[name] += 1
                    break
        assert votes, "members without a common protocol are never added"
        return votes.most_common(1)[0][0]

    def _count(self, member: ClassicMember, step: int) -> None:
        if member.join_waiter is not None:
            self._waiting_join += step
        self._count_support(member, step)

    def _count_support(self, member: ClassicMember, step: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._support[name] += step
            if not self._support[name]:
                del self._support[name]


def record_of(member: ClassicMember, assignment: bytes) -> ClassicMemberRecord:
    """Return the member as it is to be stored with that assignment."""
    return ClassicMemberRecord(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.protocols,
        assignment=assignment,
    )


def member_from_record(stored: ClassicMemberRecord) -> ClassicMember:
    """Return a stored member, without waiting requests."""
    return ClassicMember(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        protocols=stored.protocols,
        assignment=stored.assignment,
    )
