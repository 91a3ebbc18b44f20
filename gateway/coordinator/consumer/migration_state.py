"""Migration state: a group with members changes from one protocol to the other.

Rule: pure; no member loses partitions by the change itself. Upgrade: from a stable classic group,
whose members keep their generation as their epoch. Downgrade: when the last member of the consumer
protocol has left; the others rejoin.
Must not know: rows, how groups are found.

Source: KIP-848, "Online Migration".
"""

from kledger.gateway.coordinator.classic.classic_group_record import (
    ClassicGroupRecord,
    ClassicMemberRecord,
)
from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup
from kledger.gateway.coordinator.classic.classic_member_state import ClassicMember
from kledger.gateway.coordinator.consumer.consumer_group_record import ConsumerGroupRecord
from kledger.gateway.coordinator.consumer.consumer_group_state import (
    ConsumerGroup,
    SubscribedTopics,
)
from kledger.gateway.coordinator.consumer.consumer_member_state import (
    ClassicMemberMetadata,
    ConsumerMember,
    ConsumerRoster,
)
from kledger.gateway.coordinator.consumer.consumer_protocol_plan import (
    CONSUMER_PROTOCOL,
    read_assignment,
    read_subscription,
    with_topic_ids,
    write_assignment,
)
from kledger.gateway.coordinator.consumer_messages import TopicCatalog
from kledger.gateway.coordinator.effects import Effect, Transition


def upgraded(classic: ClassicGroup, catalog: TopicCatalog) -> ConsumerGroupRecord | None:
    """Return a stable classic group as one of the consumer protocol; None if it cannot be one.

    Its stored record stays the classic one until a member of the new protocol has joined.
    """
    if classic.protocol_type != CONSUMER_PROTOCOL:
        return None
    members = [_upgraded(classic, member, catalog) for member in classic.roster.members.values()]
    known = tuple(member for member in members if member is not None)
    held = [one for member in known for one in member.assigned]
    if len(known) < len(members) or len(held) > len(set(held)):
        return None
    return ConsumerGroupRecord(
        group_id=classic.group_id,
        epoch=classic.generation,
        assignment_epoch=classic.generation,
        assignor=classic.config.consumer_assignors[0],
        members=ConsumerRoster(known),
    )


def downgraded(
    group: ConsumerGroup, catalog: TopicCatalog, now_ms: int
) -> tuple[ClassicGroup, list[Effect]]:
    """Return a group without members of the consumer protocol as a classic one that rebalances.

    Its generation is the epoch of the last assignment: members learn of the rebalance from their
    next heartbeat, and may commit before they rejoin.
    """
    subscriptions = SubscribedTopics(catalog)
    members = tuple(
        ClassicMemberRecord(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.classic.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocols=member.classic.protocols,
            assignment=write_assignment(member.assigned, 0, subscriptions.of(member)),
        )
        for member in group.members
        if member.classic is not None
    )
    record = ClassicGroupRecord(
        group_id=group.group_id,
        generation=group.record.assignment_epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=members[0].protocols[0][0],
        leader=members[0].member_id,
        members=members,
    )
    classic = ClassicGroup(group.group_id, group.config)
    transition = Transition(now_ms, classic.replay(record, now_ms))
    classic.prepare_rebalance(transition)
    return classic, transition.effects


def _upgraded(
    classic: ClassicGroup, member: ClassicMember, catalog: TopicCatalog
) -> ConsumerMember | None:
    subscription = read_subscription(member.metadata(classic.protocol_name))
    assignment = read_assignment(member.assignment)
    if subscription is None or assignment is None:
        return None
    owned = with_topic_ids(assignment, catalog)
    # The group reads the metadata of the first protocol: that is the one in force.
    protocols = sorted(member.protocols, key=lambda one: one[0] != classic.protocol_name)
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(subscription.topics))),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned=owned,
        target=owned,
        classic=ClassicMemberMetadata(member.session_timeout_ms, tuple(protocols)),
    )
