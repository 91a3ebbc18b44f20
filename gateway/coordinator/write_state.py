"""Write state: what a group does when something it wanted stored is durable, or cannot be.

Rule: pure; a write that a rebalance overtook changes nothing any more.
Must not know: rows, the storage's errors.
"""

from dataclasses import dataclass

from kledger.gateway.coordinator.group_messages import JoinResult, Protocols, SyncResult
from kledger.gateway.coordinator.group_state import ClassicGroup, GroupState, session_timer
from kledger.gateway.coordinator.member_state import Member
from kledger.gateway.coordinator.outcome import Effect, Turn
from kledger.gateway.coordinator.records import GroupRecord
from kledger.gateway.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class AssignmentWrite:
    """The leader's assignment is being stored."""

    record: GroupRecord


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
    turn = Turn(now_ms)
    write = group.writes.pop(revision)
    if isinstance(write, AssignmentWrite):
        _assignment_stored(group, write.record, turn, failed=failed)
    elif isinstance(write, ReplacementWrite):
        _replacement_stored(group, write, turn, failed=failed)
    # An empty generation has nobody to tell. If it could not be stored, the next one will be.
    return turn.effects


def sync_result(group: ClassicGroup, member: Member) -> SyncResult:
    """Return the member's assignment in the running generation."""
    return SyncResult(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _assignment_stored(
    group: ClassicGroup, record: GroupRecord, turn: Turn, *, failed: bool
) -> None:
    is_overtaken = record.generation != group.generation
    if is_overtaken or group.state is not GroupState.COMPLETING_REBALANCE:
        return
    if failed:
        group.refuse_syncs(ErrorCode.COORDINATOR_NOT_AVAILABLE, turn)
        group.prepare_rebalance(turn)
        return
    group.apply(record)
    for member in group.roster.members.values():
        if member.sync_waiter is not None:
            turn.answer(member.sync_waiter, sync_result(group, member))
            member.sync_waiter = None
            group.renew_session(member, turn)


def _replacement_stored(
    group: ClassicGroup, write: ReplacementWrite, turn: Turn, *, failed: bool
) -> None:
    """Answer the join of the new self; a rebalance meanwhile answers it in its own time."""
    member = group.roster.members.get(write.member_id)
    is_overtaken = group.state is not GroupState.STABLE or group.generation != write.generation
    if member is None or is_overtaken:
        return
    is_awaited = member.join_waiter == write.waiter
    if is_awaited:
        group.roster.set_join_waiter(member, None)
        refused = JoinResult(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        turn.answer(write.waiter, refused if failed else write.result)
    if failed:
        _bring_back_old_self(group, member, write, turn)
    else:
        group.renew_session(member, turn)


def _bring_back_old_self(
    group: ClassicGroup, member: Member, write: ReplacementWrite, turn: Turn
) -> None:
    turn.cancel(session_timer(member.member_id))
    member.timer_ms = 0
    group.roster.rename(member, write.old_id)
    group.roster.set_protocols(member, write.old_protocols)
    member.session_timeout_ms, member.rebalance_timeout_ms = write.old_timeouts_ms
    group.renew_session(member, turn)
