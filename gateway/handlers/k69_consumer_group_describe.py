"""ConsumerGroupDescribe, key 69, versions 0-1 (KIP-848).

Behaviour:
- Lists the partitions that members own and their targets, by topic id and name; partitions that a
  member is revoking still count as owned. Topics that were deleted since are left out.
- An unknown or classic group is GROUP_ID_NOT_FOUND; an empty id is INVALID_GROUP_ID.

Version notes:
- v1 adds the protocol that a member speaks (KIP-1099).
"""

from kledger.gateway.coordinator.consumer.consumer_member_state import ConsumerMember
from kledger.gateway.coordinator.consumer_messages import Partitions
from kledger.gateway.metadata.authorized_operations import (
    GROUP_OPERATIONS,
    OPERATIONS_NOT_REQUESTED,
)
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

KEY = 69
MIN_VERSION = 0
MAX_VERSION = 1

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each requested group."""
    operations = OPERATIONS_NOT_REQUESTED
    if request.include_authorized_operations:
        operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(
        groups=[_describe(context, group_id, operations) for group_id in request.group_ids]
    )


def _describe(context: RequestContext, group_id: str, operations: int) -> DescribedGroup:
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
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(context, member) for member in group.members],
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
