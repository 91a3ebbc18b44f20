"""Sync state: how the leader's assignment reaches the members of a generation.

Rule: pure; the assignment of a generation comes from its leader alone and counts when it is
durable, see `write_state`.
Must not know: what assignments mean.
"""

from kledger.gateway.coordinator.classic.classic_group_state import (
    SYNC_TIMER,
    ClassicGroup,
    ClassicGroupState,
)
from kledger.gateway.coordinator.classic.classic_member_state import ClassicMember
from kledger.gateway.coordinator.classic.write_state import AssignmentWrite, sync_result
from kledger.gateway.coordinator.effects import Effect, Transition
from kledger.gateway.coordinator.group_messages import SyncCommand, SyncResult
from kledger.gateway.wire.error_codes import ErrorCode


def sync(group: ClassicGroup, command: SyncCommand, now_ms: int) -> list[Effect]:
    """Answer with the member's assignment, or let it wait for the leader's."""
    transition = Transition(now_ms)
    error = _check_sync(group, command)
    if error is not ErrorCode.NONE:
        transition.answer(command.waiter, SyncResult(error=error))
        return transition.effects
    member = group.roster.members[command.member_id]
    _sync_arrived(group, member, transition)
    if group.state is ClassicGroupState.STABLE:
        group.renew_session(member, transition)
        transition.answer(command.waiter, sync_result(group, member))
        return transition.effects
    if member.sync_waiter is not None:
        # The same member asks again on another connection; nobody reads the old answer.
        transition.answer(member.sync_waiter, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_waiter = command.waiter
    if member.member_id == group.roster.leader_id and not _is_storing(group):
        _store_assignment(group, command.assignments, transition)
    return transition.effects


def _check_sync(group: ClassicGroup, command: SyncCommand) -> ErrorCode:
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_identity(command.member_id, command.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if command.protocol_type not in {None, group.protocol_type}:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if command.protocol_name not in {None, group.protocol_name}:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _sync_arrived(group: ClassicGroup, member: ClassicMember, transition: Transition) -> None:
    """Note that the member asked; nobody is ejected for silence once all have."""
    pending_sync = group.roster.pending_sync
    if member.member_id in pending_sync:
        pending_sync.remove(member.member_id)
        if not pending_sync:
            transition.cancel(SYNC_TIMER)


def _is_storing(group: ClassicGroup) -> bool:
    """Whether an assignment of this generation is on its way; a repeat must not change it."""
    return any(
        isinstance(write, AssignmentWrite) and write.record.generation == group.generation
        for write in group.writes.values()
    )


def _store_assignment(
    group: ClassicGroup, assignments: dict[str, bytes], transition: Transition
) -> None:
    """Store what the leader sent; members that it left out get an empty assignment."""
    record = group.snapshot(assignments)
    if record.size() > group.config.group_record_bytes_max:
        group.refuse_syncs(ErrorCode.UNKNOWN_SERVER_ERROR, transition)
        group.prepare_rebalance(transition)
        return
    group.persist(AssignmentWrite(record), record, transition)
