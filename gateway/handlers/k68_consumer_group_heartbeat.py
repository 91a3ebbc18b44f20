"""ConsumerGroupHeartbeat, key 68, versions 0-1 (KIP-848).

Behaviour:
- One request to join (epoch 0), to stay, to revoke and receive partitions, and to leave (-1, or -2
  for a static member that will rejoin soon). A change is answered when it is durable.
- An assignment is sent when it has changed, and to a member that sends all fields.
- An old epoch is FENCED_MEMBER_EPOCH: the member gives up all partitions and rejoins.
- The client must be allowed to read the group, and to describe each topic that it names. A regular
  expression matches only topics that its member may describe.
- New and grown topics are assigned with the next heartbeat of any member.

Version notes:
- v0 generates the ids of members that join without one.
- v1 adds the regular expression, in RE2's syntax, and members generate their own ids (KIP-1082).
"""

from kledger.gateway.coordinator.consumer_messages import (
    JOIN_EPOCH,
    HeartbeatCommand,
    HeartbeatResult,
    TopicIdPartition,
)
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kledger.security.acl_state import Operation, ResourceType

KEY = 68
MIN_VERSION = 0
MAX_VERSION = 1

FIRST_VERSION_WITH_OWN_IDS = 1


async def handle(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Pass the heartbeat to its group."""
    if refused := _refusal(context, request):
        return ConsumerGroupHeartbeatResponse(error_code=refused, error_message=refused.name)
    groups = context.services.groups
    member_id = request.member_id
    may_get_id = context.version < FIRST_VERSION_WITH_OWN_IDS and request.member_epoch == JOIN_EPOCH
    if may_get_id and not member_id:
        member_id = groups.new_consumer_member_id()
    names = request.subscribed_topic_names
    command = HeartbeatCommand(
        group_id=request.group_id,
        member_id=member_id,
        epoch=request.member_epoch,
        client_id=context.client_id or "",
        client_host=f"/{context.peer.host}",
        principal=context.peer.principal,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if names is None else tuple(names),
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
    )
    return _response(await groups.consumer_heartbeat(command))


def _refusal(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ErrorCode:
    refused = context.refusal(Operation.READ, ResourceType.GROUP, request.group_id)
    for name in () if refused else request.subscribed_topic_names or ():
        refused = refused or context.refusal(Operation.DESCRIBE, ResourceType.TOPIC, name)
    return refused


def _owned(topics: list[TopicPartitions] | None) -> frozenset[TopicIdPartition] | None:
    if topics is None:
        return None
    return frozenset(
        TopicIdPartition(topic.topic_id, partition)
        for topic in topics
        for partition in topic.partitions
    )


def _response(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if result.assignment is None else _assignment(result.assignment),
    )


def _assignment(partitions: frozenset[TopicIdPartition]) -> Assignment:
    topics: dict[object, TopicPartitions] = {}
    for topic_id, partition in sorted(partitions):
        topic = topics.setdefault(topic_id, TopicPartitions(topic_id=topic_id, partitions=[]))
        topic.partitions.append(partition)
    return Assignment(topic_partitions=list(topics.values()))
