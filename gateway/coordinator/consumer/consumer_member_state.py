"""Consumer member state: one member of a consumer group, and its way to its target assignment.

Rule: pure; a member is a value. What it has to give up goes before what it gets, and it gets
nothing that anybody still has: so no partition is ever owned twice.
Must not know: other members beyond who has which partition, assignors, time.

Source: KIP-848, "Reconciliation Process".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

from kledger.gateway.coordinator.consumer_messages import (
    JOIN_EPOCH,
    HeartbeatCommand,
    TopicIdPartition,
)
from kledger.gateway.coordinator.group_messages import Protocols

Partitions = frozenset[TopicIdPartition]
NO_PARTITIONS: Partitions = frozenset()


class MemberState(IntEnum):
    """How far a member has come; the values are stored.

    STABLE: has all it should have in its epoch. A newer target assignment leads on.
    REVOKING: was told to give partitions up, and stays in its epoch until it has. Its silence about
        them for longer than its rebalance timeout ends its membership.
    AWAITING: is in the epoch of the target assignment, but others have not let go of all of it.
        Each heartbeat brings what has become free; the last of it leads to STABLE.
    """

    STABLE = 0
    REVOKING = 1
    AWAITING = 2


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """What a member is besides that speaks the classic protocol in a group of the consumer one."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member.

    Attributes:
        epoch: what it must say in its heartbeats; -2 for a static member that is away.
        previous_epoch: what it says if it has not heard of `epoch` yet.
        topic_regex: empty if there is none.
        assigned: what it may own.
        revoking: what it was told to give up and may still own.
        target: what it will own once everybody has followed.
        classic: None for a member that speaks the consumer protocol.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
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
        """Return everything that nobody else may get now."""
        return self.assigned | self.revoking

    def has_same_subscription(self, other: "ConsumerMember") -> bool:
        """Whether both want the same topics; a wish for an assignor waits for the next change."""
        return self.topic_names == other.topic_names and self.topic_regex == other.topic_regex


def updated(member: ConsumerMember, command: HeartbeatCommand) -> ConsumerMember:
    """Return the member with what its heartbeat changes."""
    names = command.topic_names
    return replace(
        member,
        client_id=command.client_id,
        client_host=command.client_host,
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
        member: as it stands.
        target_epoch: the epoch of the target assignment.
        owned: what the member says it has; None if it says nothing, which frees nothing.
        is_free: whether nobody has a partition.
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


def _still_owns(given_up: Partitions, owned: Partitions | None) -> bool:
    return owned is None or not given_up.isdisjoint(owned)


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
