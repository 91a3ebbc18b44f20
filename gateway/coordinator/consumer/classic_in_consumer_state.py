"""Classic in consumer state: members of the classic protocol in a group of the consumer protocol.

Rule: pure; such a member is reconciled as all others are. It sends in a JoinGroup what others send
in a heartbeat, receives its assignment in a SyncGroup, and gets REBALANCE_IN_PROGRESS when it has
to join again to make progress. Its generation is its member epoch.
Must not know: API versions, rows.

Source: KIP-848, "Online Migration".
"""

from dataclasses import replace

from kledger.gateway.coordinator.consumer.consumer_group_state import (
    ConsumerGroup,
    SubscribedTopics,
)
from kledger.gateway.coordinator.consumer.consumer_member_state import (
    ClassicMemberMetadata,
    ConsumerMember,
    MemberState,
)
from kledger.gateway.coordinator.consumer.consumer_protocol_plan import (
    CONSUMER_PROTOCOL,
    ConsumerProtocolSubscription,
    read_subscription,
    with_topic_ids,
    write_assignment,
)
from kledger.gateway.coordinator.consumer_messages import JOIN_EPOCH, TopicCatalog
from kledger.gateway.coordinator.effects import Effect, Transition
from kledger.gateway.coordinator.group_messages import (
    JoinCommand,
    JoinResult,
    LeavingMember,
    RequestingMember,
    SyncCommand,
    SyncResult,
)
from kledger.gateway.wire.error_codes import ErrorCode


def join(
    group: ConsumerGroup, command: JoinCommand, catalog: TopicCatalog, now_ms: int
) -> list[Effect]:
    """Let a member join, or rejoin to make progress; its epoch is its generation."""
    transition = Transition(now_ms)
    subscription = _subscription(command)
    error = _check_join(group, command, subscription)
    if error is not ErrorCode.NONE or subscription is None:
        transition.answer(command.waiter, JoinResult(error=error, member_id=command.member_id))
        return transition.effects
    member_id = command.member_id or command.new_member_id
    if not command.member_id and command.requires_known_id and command.instance_id is None:
        reserved = JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        transition.answer(command.waiter, reserved)
        return transition.effects
    member = _joining(group, command, member_id, subscription)
    owned = with_topic_ids(subscription.owned, catalog)
    after = group.reconcile(member, owned=owned, catalog=catalog, transition=transition)
    result = JoinResult(
        member_id=member_id,
        generation=after.epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=command.protocols[0][0],
    )
    group.store(transition, (command.waiter, result))
    return transition.effects


def sync(
    group: ConsumerGroup, command: SyncCommand, catalog: TopicCatalog, now_ms: int
) -> list[Effect]:
    """Answer with the partitions that a member may own."""
    transition = Transition(now_ms)
    sender = RequestingMember(command.member_id, command.generation, command.instance_id)
    member = _sender(group, sender)
    if isinstance(member, ErrorCode):
        transition.answer(command.waiter, SyncResult(error=member))
        return transition.effects
    assert member.classic is not None, "only classic members are found"
    name, metadata = member.classic.protocols[0]
    subscription = read_subscription(metadata)
    version = 0 if subscription is None else subscription.version
    result = SyncResult(
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=name,
        assignment=write_assignment(member.assigned, version, SubscribedTopics(catalog).of(member)),
    )
    group.renew_session(member, transition)
    group.store(transition, (command.waiter, result))
    return transition.effects


def heartbeat(
    group: ConsumerGroup, sender: RequestingMember, now_ms: int
) -> tuple[ErrorCode, list[Effect]]:
    """Renew a session; a member that has to revoke, or could receive, partitions must rejoin."""
    transition = Transition(now_ms)
    member = _sender(group, sender)
    if isinstance(member, ErrorCode):
        return member, transition.effects
    group.renew_session(member, transition)
    could_receive = any(group.members.is_free(one) for one in member.target - member.assigned)
    is_behind = member.epoch < group.record.epoch or member.state is MemberState.REVOKING
    error = ErrorCode.REBALANCE_IN_PROGRESS if is_behind or could_receive else ErrorCode.NONE
    return error, transition.effects


def leave(
    group: ConsumerGroup, leaving: tuple[LeavingMember, ...], waiter: int, now_ms: int
) -> list[Effect]:
    """Remove members of either protocol; an administrator names instances or ids.

    The answer is the error of the request, NONE, and one for each leaving member.
    """
    transition = Transition(now_ms)
    errors = [_leave_one(group, leaving_member) for leaving_member in leaving]
    group.store(transition, (waiter, (ErrorCode.NONE, errors)))
    return transition.effects


def _subscription(command: JoinCommand) -> ConsumerProtocolSubscription | None:
    """Return the subscription in a member's preferred protocol, None if it is something else."""
    if command.protocol_type != CONSUMER_PROTOCOL or not command.protocols:
        return None
    return read_subscription(command.protocols[0][1])


def _check_join(
    group: ConsumerGroup, command: JoinCommand, subscription: ConsumerProtocolSubscription | None
) -> ErrorCode:
    if subscription is None:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    holder = None
    if command.instance_id is not None:
        holder = group.members.holder_of(command.instance_id)
    member = group.members.get(command.member_id)
    if holder is None and member is None:
        is_full = len(group.members) >= group.config.consumer_max_size
        return ErrorCode.GROUP_MAX_SIZE_REACHED if is_full else ErrorCode.NONE
    if holder is not None and command.member_id not in {"", holder.member_id}:
        return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE


def _joining(
    group: ConsumerGroup,
    command: JoinCommand,
    member_id: str,
    subscription: ConsumerProtocolSubscription,
) -> ConsumerMember:
    """Return the member with what its JoinGroup says; a static one keeps its partitions."""
    known = group.members.get(member_id)
    if known is None and command.instance_id is not None:
        known = group.members.holder_of(command.instance_id)
    if known is not None and known.member_id != member_id:
        group.forget(known)
        known = replace(known, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    before = known or ConsumerMember(
        member_id=member_id,
        instance_id=command.instance_id,
        rack_id=None,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
    )
    member = replace(
        before,
        member_id=member_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(subscription.topics))),
        topic_regex="",
        classic=ClassicMemberMetadata(command.session_timeout_ms, command.protocols),
    )
    if known is None or not member.has_same_subscription(known):
        group.bump_epoch()
    return member


def _sender(group: ConsumerGroup, sender: RequestingMember) -> ConsumerMember | ErrorCode:
    member = group.members.get(sender.member_id)
    if sender.instance_id is not None:
        holder = group.members.holder_of(sender.instance_id)
        if holder is not None and holder.member_id != sender.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if member is None or member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member if sender.generation == member.epoch else ErrorCode.ILLEGAL_GENERATION


def _leave_one(group: ConsumerGroup, leaving_member: LeavingMember) -> ErrorCode:
    member = group.members.get(leaving_member.member_id)
    if leaving_member.instance_id is not None:
        holder = group.members.holder_of(leaving_member.instance_id)
        if holder is not None and leaving_member.member_id not in {"", holder.member_id}:
            return ErrorCode.FENCED_INSTANCE_ID
        member = holder
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    group.remove(member)
    return ErrorCode.NONE
