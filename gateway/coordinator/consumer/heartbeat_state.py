"""Consumer beat state: how a heartbeat lets a member join a consumer group, move on and leave.

Rule: pure; a heartbeat is refused before anything has changed, or taken in as a whole.
Must not know: API versions, rows.

Source: KIP-848 (the protocol), KIP-345 (static members).
"""

from dataclasses import replace

from kledger.gateway.coordinator.consumer.consumer_group_state import ConsumerGroup
from kledger.gateway.coordinator.consumer.consumer_member_state import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    Partitions,
    reconciled,
    updated,
)
from kledger.gateway.coordinator.consumer.target_assignment_state import update_target_assignment
from kledger.gateway.coordinator.consumer_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    HeartbeatCommand,
    HeartbeatResult,
    TopicCatalog,
)
from kledger.gateway.coordinator.effects import Effect, Transition
from kledger.gateway.regex import InvalidRegex, compile_regex
from kledger.gateway.wire.error_codes import ErrorCode


class _HeartbeatRejected(Exception):
    """A heartbeat gets an error, and nothing has changed."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        self.result = HeartbeatResult(error=error, message=message)
        super().__init__(message)


def heartbeat(
    group: ConsumerGroup, command: HeartbeatCommand, catalog: TopicCatalog, now_ms: int
) -> list[Effect]:
    """Let a member join, stay or leave, and move it on."""
    transition = Transition(now_ms)
    if group.is_dead:
        transition.answer(
            command.waiter, HeartbeatResult(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        )
        return transition.effects
    try:
        if command.epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}:
            result = _leave(group, command, transition)
        else:
            result = _stay(group, command, catalog, transition)
    except _HeartbeatRejected as refused:
        assert not group.is_changed, f"{group.group_id} changed and refused"
        transition.answer(command.waiter, refused.result)
    else:
        group.store(transition, (command.waiter, result))
    return transition.effects


def _stay(
    group: ConsumerGroup, command: HeartbeatCommand, catalog: TopicCatalog, transition: Transition
) -> HeartbeatResult:
    known = _admit(group, command)
    if command.topic_regex:
        _check_regex(command.topic_regex)
    before = _with_request(group, known, command, transition)
    after = reconcile_member(
        group, before, owned=command.owned, catalog=catalog, transition=transition
    )
    is_news = command.is_full or after.assigned != before.assigned
    return HeartbeatResult(
        member_id=after.member_id,
        epoch=after.epoch,
        heartbeat_interval_ms=group.times.heartbeat_interval_ms,
        assignment=after.assigned if is_news else None,
    )


def reconcile_member(
    group: ConsumerGroup,
    member: ConsumerMember,
    *,
    owned: Partitions | None,
    catalog: TopicCatalog,
    transition: Transition,
) -> ConsumerMember:
    """Take a member's new value in, and bring it one step nearer to its target.

    Args:
        group: of the member.
        member: with what it has just said.
        owned: what it says it has; None if it says nothing.
        catalog: the topics that exist.
        transition: the event.

    Returns:
        The member as it stands now.
    """
    group.replace_member(member)
    group.renew_session(member, transition)
    update_target_assignment(group, catalog)
    before = group.roster.member(member.member_id)
    after = reconciled(
        before,
        target_epoch=group.assignment_epoch,
        owned=owned,
        is_free=group.roster.is_free,
    )
    group.replace_member(after)
    group.timers.watch(before, after, transition)
    return after


def _admit(group: ConsumerGroup, command: HeartbeatCommand) -> ConsumerMember | None:
    """Return who the sender was so far, None if it is new.

    Raises:
        _HeartbeatRejected: it is not who it claims to be, or there is no room.
    """
    size_max = group.config.consumer_max_size
    if command.member_id not in group.roster and len(group.roster) >= size_max:
        raise _HeartbeatRejected(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the group has {len(group.roster)} members, which is as many as it may have",
        )
    if command.instance_id is not None:
        return _admit_static(group, command, command.instance_id)
    if command.epoch == JOIN_EPOCH:
        return group.roster.get(command.member_id)
    member = _known(group, command.member_id)
    _check_epoch(member, command)
    return member


def _admit_static(
    group: ConsumerGroup, command: HeartbeatCommand, instance_id: str
) -> ConsumerMember | None:
    if command.epoch != JOIN_EPOCH:
        member = _static_member_of(group, command, instance_id)
        _check_epoch(member, command)
        return member
    holder = group.roster.holder_of(instance_id)
    if holder is None:
        return group.roster.get(command.member_id)
    # One that spoke the classic protocol does not say that it leaves.
    if holder.epoch != STATIC_LEAVE_EPOCH and holder.classic is None:
        raise _HeartbeatRejected(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {holder.member_id} member.",
        )
    return holder


def _with_request(
    group: ConsumerGroup,
    known: ConsumerMember | None,
    command: HeartbeatCommand,
    transition: Transition,
) -> ConsumerMember:
    """Return the member with what its heartbeat says.

    Three cases: 1. a new member; 2. a static member that comes back, under any id, and goes on with
    what it had; 3. a member that was here all the time.
    """
    if known is None:
        member = ConsumerMember(
            member_id=command.member_id,
            instance_id=command.instance_id,
            rack_id=None,
            client_id=command.client_id,
            client_host=command.client_host,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
        )
    elif known.epoch == STATIC_LEAVE_EPOCH or known.member_id != command.member_id:
        group.forget(known, transition)
        member = replace(
            known,
            member_id=command.member_id,
            epoch=JOIN_EPOCH,
            previous_epoch=JOIN_EPOCH,
            classic=None,
        )
    else:
        instance_id = command.instance_id or known.instance_id
        member = replace(known, instance_id=instance_id, classic=None)
    member = updated(member, command)
    if known is None or not member.has_same_subscription(known):
        group.bump_epoch()
    return member


def _leave(
    group: ConsumerGroup, command: HeartbeatCommand, transition: Transition
) -> HeartbeatResult:
    """Let a member go for good, or keep the place of a static one for a session."""
    if command.instance_id is not None:
        member = _static_member_of(group, command, command.instance_id)
    else:
        member = _known(group, command.member_id)
    if command.epoch == LEAVE_EPOCH:
        group.remove(member, transition)
    else:
        group.timers.stop_watching(member, transition)
        away = replace(
            member,
            epoch=STATIC_LEAVE_EPOCH,
            previous_epoch=STATIC_LEAVE_EPOCH,
            state=MemberState.STABLE,
            revoking=NO_PARTITIONS,
        )
        group.replace_member(away)
    return HeartbeatResult(member_id=member.member_id, epoch=command.epoch)


def _known(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.roster.get(member_id)
    if member is None:
        raise _HeartbeatRejected(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {group.group_id}.",
        )
    return member


def _static_member_of(
    group: ConsumerGroup, command: HeartbeatCommand, instance_id: str
) -> ConsumerMember:
    """Return the static member that the sender claims to be."""
    holder = group.roster.holder_of(instance_id)
    if holder is None:
        raise _HeartbeatRejected(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
        )
    if holder.member_id != command.member_id:
        raise _HeartbeatRejected(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {command.member_id} with instance id {instance_id} was fenced by "
            f"member {holder.member_id}.",
        )
    return holder


def _check_epoch(member: ConsumerMember, command: HeartbeatCommand) -> None:
    """Let a member in with its epoch, or with the one before if the answer may have been lost."""
    missed_one = (
        command.epoch == member.previous_epoch
        and command.owned is not None
        and command.owned <= member.assigned
    )
    if command.epoch != member.epoch and not missed_one:
        raise _HeartbeatRejected(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has member epoch {command.epoch}, expected {member.epoch}. "
            "The member must abandon all its partitions and rejoin.",
        )


def _check_regex(text: str) -> None:
    try:
        compile_regex(text)
    except InvalidRegex as error:
        raise _HeartbeatRejected(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}",
        ) from None
