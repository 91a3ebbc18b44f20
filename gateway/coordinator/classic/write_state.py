"""Write state: what a group does when something it wanted stored is durable, or cannot be.

Rule: pure; a write that a rebalance overtook changes nothing any more.
Must not know: rows, the storage's errors.
"""

from dataclasses import dataclass

from kledger.gateway.coordinator.classic.classic_group_record import ClassicGroupRecord
from kledger.gateway.coordinator.classic.classic_group_state import (
    ClassicGroup,
    ClassicGroupState,
    session_timer,
)
from kledger.gateway.coordinator.classic.classic_member_state import ClassicMember
from kledger.gateway.coordinator.effects import Effect, Transition
from kledger.gateway.coordinator.group_messages import JoinResult, Protocols, SyncResult
from kledger.gateway.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class AssignmentWrite:
    """The leader's assignment is being stored."""

    record: ClassicGroupRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementWrite:
    """A static member that came back under a new id is being stored.

    The fields that begin with `old` bring its old self back if the storage refuses.
    """

    member_id: str
    waiter: int
    generation: int
    result: JoinResult
    old_id: str
    old_protocols: Protocols
    old_timeouts_ms: tuple[int, int]


def persisted(group: ClassicGroup, revision: int, *, failed: bool, now_ms: int) -> list[Effect]:
    """Go on after the `Persist` of that revision ended."""
    transition = Transition(now_ms)
    write = group.writes.pop(revision)
    if isinstance(write, AssignmentWrite):
        _assignment_stored(group, write.record, transition, failed=failed)
    elif isinstance(write, ReplacementWrite):
        _replacement_stored(group, write, transition, failed=failed)
    # An empty generation has nobody to tell. If it could not be stored, the next one will be.
    return transition.effects


def sync_result(group: ClassicGroup, member: ClassicMember) -> SyncResult:
    """Return the member's assignment in the running generation."""
    return SyncResult(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _assignment_stored(
    group: ClassicGroup, record: ClassicGroupRecord, transition: Transition, *, failed: bool
) -> None:
    is_overtaken = record.generation != group.generation
    if is_overtaken or group.state is not ClassicGroupState.COMPLETING_REBALANCE:
        return
    if failed:
        group.refuse_syncs(ErrorCode.COORDINATOR_NOT_AVAILABLE, transition)
        group.prepare_rebalance(transition)
        return
    group.apply(record)
    for member in group.roster.members.values():
        if member.sync_waiter is not None:
            transition.answer(member.sync_waiter, sync_result(group, member))
            member.sync_waiter = None
            group.renew_session(member, transition)


def _replacement_stored(
    group: ClassicGroup, write: ReplacementWrite, transition: Transition, *, failed: bool
) -> None:
    """Answer the join of the new self; a rebalance meanwhile answers it in its own time."""
    member = group.roster.members.get(write.member_id)
    is_overtaken = (
        group.state is not ClassicGroupState.STABLE or group.generation != write.generation
    )
    if member is None or is_overtaken:
        return
    is_awaited = member.join_waiter == write.waiter
    if is_awaited:
        group.roster.set_join_waiter(member, None)
        refused = JoinResult(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        transition.answer(write.waiter, refused if failed else write.result)
    if failed:
        _restore_old_member(group, member, write, transition)
    else:
        group.renew_session(member, transition)


def _restore_old_member(
    group: ClassicGroup, member: ClassicMember, write: ReplacementWrite, transition: Transition
) -> None:
    transition.cancel(session_timer(member.member_id))
    member.timer_ms = 0
    group.roster.rename(member, write.old_id)
    group.roster.set_protocols(member, write.old_protocols)
    member.session_timeout_ms, member.rebalance_timeout_ms = write.old_timeouts_ms
    group.renew_session(member, transition)
