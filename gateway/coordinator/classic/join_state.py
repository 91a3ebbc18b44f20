"""Join state: how a member gets into the next generation of a group.

Rule: pure; decides on the group's data and moves it through the group's own transitions. A join is
answered now, or its waiter is kept in the member and answered by a later event.
Must not know: API versions (the command says what they mean), rows.

Source: KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-389 (size
limit), KIP-394 (ids before membership), KIP-814 (skipped assignment).
"""

from dataclasses import replace

from kledger.gateway.coordinator.classic.classic_group_state import (
    ClassicGroup,
    ClassicGroupState,
    session_timer,
)
from kledger.gateway.coordinator.classic.classic_member_state import ClassicMember
from kledger.gateway.coordinator.classic.write_state import ReplacementWrite
from kledger.gateway.coordinator.effects import Effect, Transition
from kledger.gateway.coordinator.group_messages import JoinCommand, JoinResult
from kledger.gateway.wire.error_codes import ErrorCode


def join(group: ClassicGroup, command: JoinCommand, now_ms: int) -> list[Effect]:
    """Take a member into the next generation, or say why not."""
    transition = Transition(now_ms)
    error = _check_join(group, command)
    if error is ErrorCode.GROUP_MAX_SIZE_REACHED and command.member_id in group.roster:
        # The group shrank its limit or filled up meanwhile: who is not in time loses its place.
        group.drop_member(command.member_id, transition)
        group.members_removed(transition)
    if error is not ErrorCode.NONE:
        is_unknown = error is ErrorCode.GROUP_MAX_SIZE_REACHED
        refused_id = "" if is_unknown else command.member_id
        transition.answer(command.waiter, JoinResult(error=error, member_id=refused_id))
    elif command.member_id:
        _join_again(group, command, transition)
    else:
        _join_first(group, command, transition)
    return transition.effects


def _check_join(group: ClassicGroup, command: JoinCommand) -> ErrorCode:
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not _has_room(group, command.member_id):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not _fits_protocols(group, command):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not command.member_id or command.member_id in group.roster.pending:
        return ErrorCode.NONE
    return group.check_identity(command.member_id, command.instance_id)


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    """Whether the group may have this member; while it prepares, only who joined counts."""
    size_max = group.config.group_max_size
    member = group.roster.members.get(member_id)
    if group.state is ClassicGroupState.EMPTY:
        return True
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        has_joined = member is not None and member.join_waiter is not None
        return has_joined or group.roster.waiting_join_count < size_max
    return member is not None or len(group.roster) < size_max


def _fits_protocols(group: ClassicGroup, command: JoinCommand) -> bool:
    """Whether type and protocols agree with what the members have in common."""
    if group.state is ClassicGroupState.EMPTY or not len(group.roster):
        return bool(command.protocol_type) and bool(command.protocols)
    return command.protocol_type == group.protocol_type and group.roster.supports_any(
        name for name, _ in command.protocols
    )


def _join_first(group: ClassicGroup, command: JoinCommand, transition: Transition) -> None:
    """Three cases: 1. a static member that was here before; 2. an id first; 3. a new member."""
    if command.instance_id is not None and command.instance_id in group.roster.static_ids:
        _replace_static(group, command, transition)
    elif command.requires_known_id and command.instance_id is None:
        _reserve_member_id(group, command, transition)
    else:
        _add_member(group, command, command.new_member_id, transition)


def _reserve_member_id(group: ClassicGroup, command: JoinCommand, transition: Transition) -> None:
    """Give out an id; it is a member only when it comes back (KIP-394)."""
    member_id = command.new_member_id
    if len(group.roster.pending) >= group.config.pending_members_max:
        full = JoinResult(error=ErrorCode.GROUP_MAX_SIZE_REACHED)
        transition.answer(command.waiter, full)
        return
    group.roster.pending.add(member_id)
    transition.schedule(session_timer(member_id), command.session_timeout_ms)
    promised = JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    transition.answer(command.waiter, promised)


def _add_member(
    group: ClassicGroup, command: JoinCommand, member_id: str, transition: Transition
) -> None:
    if not len(group.roster):
        group.protocol_type = command.protocol_type
    if group.is_in_initial_delay:
        group.has_joined_in_delay = True
    member = ClassicMember(
        member_id=member_id,
        instance_id=command.instance_id,
        client_id=command.client_id,
        client_host=command.client_host,
        session_timeout_ms=command.session_timeout_ms,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        protocols=command.protocols,
        # A static member comes back under its instance id even if it never learnt this one.
        has_own_id=bool(command.member_id) or command.instance_id is not None,
        is_new=True,
        join_waiter=command.waiter,
    )
    group.roster.add(member)
    # While it waits it cannot send heartbeats, and a lost connection cannot always be seen: a
    # limit of its own keeps abandoned members from piling up during a long rebalance.
    transition.cancel(session_timer(member_id))
    group.renew_session(member, transition, group.config.new_member_join_timeout_ms)
    _rebalance(group, transition)


def _join_again(group: ClassicGroup, command: JoinCommand, transition: Transition) -> None:
    """Let a member with an id join: it may be new, change something, or just repeat itself."""
    if command.member_id in group.roster.pending:
        if command.instance_id is None:
            _add_member(group, command, command.member_id, transition)
        else:
            unknown = JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=command.member_id)
            transition.answer(command.waiter, unknown)
        return
    member = group.roster.members[command.member_id]
    is_unchanged = member.protocols == command.protocols
    is_leader = member.member_id == group.roster.leader_id
    # The leader of a stable group joins to have topics assigned that have changed since; a member
    # of a generation that just began may have missed the answer to its join.
    if is_unchanged and (
        group.state is ClassicGroupState.COMPLETING_REBALANCE
        or (group.state is ClassicGroupState.STABLE and not is_leader)
    ):
        group.renew_session(member, transition)
        transition.answer(command.waiter, group.join_result(member))
        return
    _update_member(group, member, command, transition)
    _rebalance(group, transition)


def _update_member(
    group: ClassicGroup, member: ClassicMember, command: JoinCommand, transition: Transition
) -> None:
    group.roster.set_protocols(member, command.protocols)
    member.session_timeout_ms = command.session_timeout_ms
    member.rebalance_timeout_ms = command.rebalance_timeout_ms
    before = group.roster.set_join_waiter(member, command.waiter)
    if before is not None:
        # The same member asks again on another connection; nobody reads the old answer.
        again = JoinResult(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        transition.answer(before, again)
    if not member.is_new:
        group.renew_session(member, transition)


def _rebalance(group: ClassicGroup, transition: Transition) -> None:
    """Begin to collect members, or see whether this one was the last to come."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        group.maybe_complete_join(transition)
    else:
        group.prepare_rebalance(transition)


def _replace_static(group: ClassicGroup, command: JoinCommand, transition: Transition) -> None:
    """Give a static member that restarted a new id, without a rebalance if nothing else changed.

    Three cases: 1. stable and the protocol stays: the member gets its old assignment with its
    next sync; 2. stable and the protocol would change: rebalance; 3. a generation is being made:
    the leader may be assigning to the old id, so begin again.
    """
    assert command.instance_id is not None, "only static members are replaced"
    old_id = group.roster.static_ids[command.instance_id]
    member = group.roster.members[old_id]
    old_leader = group.roster.leader_id
    write = ReplacementWrite(
        member_id=command.new_member_id,
        waiter=command.waiter,
        generation=group.generation,
        result=JoinResult(),
        old_id=old_id,
        old_protocols=member.protocols,
        old_timeouts_ms=(member.session_timeout_ms, member.rebalance_timeout_ms),
    )
    _fence_old_member_id(group, member, command.new_member_id, transition)
    _update_member(group, member, command, transition)
    if group.state is not ClassicGroupState.STABLE:
        _rebalance(group, transition)
    elif group.roster.choose_protocol() != group.protocol_name:
        group.prepare_rebalance(transition)
    else:
        result = group.join_result(member)
        if command.can_skip_assignment:
            is_leader = member.member_id == group.roster.leader_id
            result = replace(result, skip_assignment=is_leader)
        else:
            # An older client that sees itself lead would assign anew: it is told of its old self.
            result = replace(result, leader=old_leader or "", members=())
        group.persist(replace(write, result=result), group.snapshot(), transition)


def _fence_old_member_id(
    group: ClassicGroup, member: ClassicMember, new_id: str, transition: Transition
) -> None:
    """Rename the member; requests of its old id are answered FENCED_INSTANCE_ID."""
    old_id = member.member_id
    old_waiter = group.roster.set_join_waiter(member, None)
    if old_waiter is not None:
        fenced = JoinResult(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old_id)
        transition.answer(old_waiter, fenced)
    group.answer_waiters(member, ErrorCode.FENCED_INSTANCE_ID, transition)
    transition.cancel(session_timer(old_id))
    member.timer_ms = 0
    group.roster.rename(member, new_id)
    if member.is_new:
        group.renew_session(member, transition, group.config.new_member_join_timeout_ms)
    else:
        group.renew_session(member, transition)
