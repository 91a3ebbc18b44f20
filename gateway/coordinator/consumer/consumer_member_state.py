"""Consumer member state: one member of a consumer group, and the roster of all of them.

Rule: pure; a member and a roster are values. A member revokes before it receives, and receives only
free partitions: a partition has at most one holder, a static id at most one member. The roster
asserts both at every change.
Must not know: epochs of the group, assignors, time.

Source: KIP-848, "Reconciliation Process".
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

from kledger.gateway.coordinator.consumer_messages import (
    JOIN_EPOCH,
    HeartbeatCommand,
    Partitions,
    TopicIdPartition,
)
from kledger.gateway.coordinator.group_messages import Protocols
from kledger.security.principal import ANONYMOUS, Principal

NO_PARTITIONS: Partitions = frozenset()


class MemberState(IntEnum):
    """How far a member is on the way to its target; the values are stored.

    STABLE: owns its whole target in its epoch. A newer target assignment leads on.
    REVOKING: was asked to revoke partitions, and stays in its epoch until it has. If it does not
        confirm that within its rebalance timeout, its membership ends.
    AWAITING: is in the epoch of the target assignment, but other members still hold some of its
        partitions. Each heartbeat assigns what has become free; the last of it leads to STABLE.
    """

    STABLE = 0
    REVOKING = 1
    AWAITING = 2


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """What a member of the classic protocol has in addition, in a group of the consumer one."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member.

    Attributes:
        principal: in whose name its last heartbeat came; ANONYMOUS in rows of older programs.
        epoch: the epoch that its heartbeats must carry; -2 while a static member is away.
        previous_epoch: the epoch that they carry if the last answer was lost.
        topic_regex: empty if there is none.
        assigned: the partitions that it may own.
        revoking: the partitions that it was asked to revoke and may still own.
        target: the partitions that it will own once every member has reached its target.
        classic: None for a member that speaks the consumer protocol.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    principal: Principal = ANONYMOUS
    topic_names: tuple[str, ...] = ()
    topic_regex: str = ""
    server_assignor: str | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    target: Partitions = NO_PARTITIONS
    classic: ClassicMemberMetadata | None = None

    @property
    def held(self) -> Partitions:
        """The partitions that no other member may get now."""
        return self.assigned | self.revoking

    def has_same_subscription(self, other: "ConsumerMember") -> bool:
        """Whether both subscribe to the same topics; another assignor alone changes nothing."""
        return self._subscription == other._subscription

    @property
    def _subscription(self) -> tuple[object, ...]:
        """The names, and the expression with the client that sees what it matches."""
        matched = (self.topic_regex, self.principal, self.client_host) if self.topic_regex else None
        return self.topic_names, matched


def updated(member: ConsumerMember, command: HeartbeatCommand) -> ConsumerMember:
    """Return the member with what its heartbeat changes."""
    names = command.topic_names
    return replace(
        member,
        client_id=command.client_id,
        client_host=command.client_host,
        principal=command.principal,
        rack_id=member.rack_id if command.rack_id is None else command.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms
            if command.rebalance_timeout_ms < 0
            else command.rebalance_timeout_ms
        ),
        topic_names=member.topic_names if names is None else tuple(sorted(set(names))),
        topic_regex=member.topic_regex if command.topic_regex is None else command.topic_regex,
        server_assignor=(
            member.server_assignor if command.server_assignor is None else command.server_assignor
        ),
    )


def reconciled(
    member: ConsumerMember,
    *,
    target_epoch: int,
    owned: Partitions | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> ConsumerMember:
    """Return the member one step nearer to its target.

    Args:
        member: before the step.
        target_epoch: the epoch of the target assignment.
        owned: the partitions that the client reports to own; None if it reports none, which frees
            none.
        is_free: whether no member holds a partition.
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    epoch = member.epoch
    if member.state is MemberState.REVOKING:
        if _still_owns(member.revoking, owned):
            return member
        epoch += 1
    kept = member.assigned & member.target
    surplus = member.assigned - kept
    if surplus and _still_owns(surplus, owned):
        return _moved(
            member, epoch=epoch, state=MemberState.REVOKING, assigned=kept, revoking=surplus
        )
    free = frozenset(one for one in member.target - kept if is_free(one))
    assigned = kept | free
    state = MemberState.STABLE if assigned == member.target else MemberState.AWAITING
    return _moved(
        member, epoch=target_epoch, state=state, assigned=assigned, revoking=NO_PARTITIONS
    )


def _still_owns(surplus: Partitions, owned: Partitions | None) -> bool:
    return owned is None or not surplus.isdisjoint(owned)


def _moved(
    member: ConsumerMember,
    *,
    epoch: int,
    state: MemberState,
    assigned: Partitions,
    revoking: Partitions,
) -> ConsumerMember:
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )


class ConsumerRoster:
    """The members of one group by id, and the holder of each partition: a value, as each member."""

    __slots__ = ("_holders", "_members", "_static_ids")

    def __init__(self, members: Iterable[ConsumerMember] = ()) -> None:
        self._members: dict[str, ConsumerMember] = {}
        self._static_ids: dict[str, str] = {}
        self._holders: dict[TopicIdPartition, str] = {}
        self._add(members)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ConsumerMember]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerRoster) and self._members == other._members

    def __hash__(self) -> int:
        return hash(tuple(self._members))

    def get(self, member_id: str) -> ConsumerMember | None:
        """Return a member, or None."""
        return self._members.get(member_id)

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member that exists."""
        return self._members[member_id]

    def holder_of(self, instance_id: str) -> ConsumerMember | None:
        """Return the static member of that instance id, or None."""
        member_id = self._static_ids.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def is_free(self, partition: TopicIdPartition) -> bool:
        """Whether no member is assigned the partition or still revoking it."""
        return partition not in self._holders

    def changed_since(self, before: "ConsumerRoster") -> list[ConsumerMember]:
        """Return the members that an earlier roster lacks, or has with another value."""
        old = before._members
        return [each for key, each in self._members.items() if old.get(key) is not each]

    def with_members(self, *members: ConsumerMember) -> "ConsumerRoster":
        """Return the roster with members added, or replaced by their id; itself if none differs."""
        before = self._members
        changed = [each for each in members if before.get(each.member_id) != each]
        if not changed:
            return self
        after = self._copy()
        for member in changed:
            if member.member_id in before:
                after._release(before[member.member_id])
        after._add(changed)
        return after

    def without(self, member_id: str) -> "ConsumerRoster":
        """Return the roster without a member; its partitions are free."""
        after = self._copy()
        after._release(after._members.pop(member_id))
        return after

    def _copy(self) -> "ConsumerRoster":
        copy = ConsumerRoster()
        copy._members = self._members.copy()
        copy._static_ids = self._static_ids.copy()
        copy._holders = self._holders.copy()
        return copy

    def _add(self, members: Iterable[ConsumerMember]) -> None:
        for member in members:
            if member.instance_id is not None:
                holder = self._static_ids.setdefault(member.instance_id, member.member_id)
                assert holder == member.member_id, f"{member.instance_id} is {holder}"
            for partition in member.held:
                taken = self._holders.setdefault(partition, member.member_id)
                assert taken == member.member_id, f"{partition} belongs to {taken}"
            self._members[member.member_id] = member

    def _release(self, member: ConsumerMember) -> None:
        if member.instance_id is not None:
            del self._static_ids[member.instance_id]
        for partition in member.held:
            del self._holders[partition]
