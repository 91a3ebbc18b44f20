"""ConsumerGroupDescribe, key 69, versions 0-1 (KIP-848).

Behaviour:
- Lists the partitions that members own and their targets, by topic id and name; partitions that a
  member is revoking still count as owned. Topics that were deleted since are left out.
- The client must be allowed to describe the group. If it may not describe a topic of a member, it
  gets the group with TOPIC_AUTHORIZATION_FAILED alone.
- An unknown or classic group is GROUP_ID_NOT_FOUND; an empty id is INVALID_GROUP_ID.

Version notes:
- v1 adds the protocol that a member speaks (KIP-1099).
"""

from collections.abc import Iterable

from kledger.gateway.coordinator.consumer.consumer_member_state import ConsumerMember
from kledger.gateway.coordinator.consumer_messages import Partitions
from kledger.gateway.metadata.authorized_operations import OPERATIONS_NOT_REQUESTED
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k69_consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kledger.security.acl_state import Operation, ResourceType

KEY = 69
MIN_VERSION = 0
MAX_VERSION = 1

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each requested group."""
    with_operations = request.include_authorized_operations
    return ConsumerGroupDescribeResponse(
        groups=[_describe(context, group_id, with_operations) for group_id in request.group_ids]
    )


def _describe(context: RequestContext, group_id: str, with_operations: bool) -> DescribedGroup:
    if refused := context.refusal(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return DescribedGroup(error_code=refused, group_id=group_id)
    operations = OPERATIONS_NOT_REQUESTED
    if with_operations:
        operations = context.authorized_operations(ResourceType.GROUP, group_id)
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    group = context.services.groups.describe_consumer_group(group_id)
    if group is None and (error := context.services.groups.error(group_id)):
        return DescribedGroup(error_code=error, group_id=group_id)
    if group is None:
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} not found: there is none of the consumer protocol.",
            group_id=group_id,
        )
    members = [_member(context, member) for member in group.members]
    if not all(
        context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name)
        for name in _topic_names(members)
    ):
        return DescribedGroup(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has topics that the client may not describe.",
            group_id=group_id,
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=members,
        authorized_operations=operations,
    )


def _member(context: RequestContext, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(context, member.held),
        target_assignment=_assignment(context, member.target),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _topic_names(members: Iterable[Member]) -> set[str]:
    """Return the topics of members: those that they name, and those assigned to them."""
    return {
        name
        for member in members
        for name in (
            *(member.subscribed_topic_names),
            *(each.topic_name for each in member.assignment.topic_partitions),
            *(each.topic_name for each in member.target_assignment.topic_partitions),
        )
    }


def _assignment(context: RequestContext, partitions: Partitions) -> Assignment:
    topics: dict[str, TopicPartitions] = {}
    for topic_id, partition in sorted(partitions):
        topic = context.services.registry.get_by_id(topic_id)
        if topic is not None:
            answer = topics.setdefault(
                topic.name,
                TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=[]),
            )
            answer.partitions.append(partition)
    return Assignment(topic_partitions=list(topics.values()))
