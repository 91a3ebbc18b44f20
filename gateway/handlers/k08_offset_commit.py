"""OffsetCommit, key 8, versions 2-10.

Behaviour:
- The client must be allowed to read the group, and the topic of each partition.
- Each partition's topic, index and length of metadata are checked; the valid ones are stored in one
  atomic write and answered when that is durable. The group accepts or rejects them as a whole.
- Null metadata is stored as an empty string. Offsets carry the id of their topic, so that a topic
  created again under the same name does not inherit them.
- Generation -1 with an empty member id is a commit without membership: valid while the group is
  empty.

Version notes:
- v2-4 carry a retention time, which v5 removes (KIP-211).
- v6 adds the leader epoch (KIP-320), v7 the instance id (KIP-345).
- v9 carries the member epoch of the consumer protocol in the field of the generation (KIP-848);
  earlier versions of its members are UNSUPPORTED_VERSION. An old epoch is STALE_MEMBER_EPOCH.
- v10 names topics by id.
"""

from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.coordinator.groups.offset_commits import commit_error, committed_offset
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kledger.offsets import NO_EXPIRY, CommittedOffset, TopicPartition
from kledger.security.acl_state import Operation, ResourceType
from kledger.topics import Topic

KEY = 8
MIN_VERSION = 2
MAX_VERSION = 10

FIRST_VERSION_WITH_EPOCHS = 9
FIRST_VERSION_BY_ID = 10
TIME_MAX_MS = (1 << 63) - 1


async def handle(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Check each partition, store those that pass, answer all."""
    now_ms = context.services.clock.now_ms()
    expire_ms = _expiry(now_ms, request.retention_time_ms)
    offsets: list[tuple[TopicPartition, CommittedOffset]] = []
    accepted: list[OffsetCommitResponsePartition] = []
    answers = []
    group_refusal = context.refusal(Operation.READ, ResourceType.GROUP, request.group_id)
    for asked in request.topics:
        topic = _find_topic(context, asked)
        refused = group_refusal or _refusal(context, topic, asked)
        partitions = []
        for partition in asked.partitions:
            error = refused or _check(context, topic, partition)
            answer = OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error
            )
            partitions.append(answer)
            if topic is not None and error is ErrorCode.NONE:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                committed = committed_offset(topic, partition, now_ms=now_ms, expire_ms=expire_ms)
                offsets.append((topic_partition, committed))
                accepted.append(answer)
        answers.append(
            OffsetCommitResponseTopic(
                name=asked.name, topic_id=asked.topic_id, partitions=partitions
            )
        )
    if offsets:
        sender = RequestingMember(
            request.member_id,
            request.generation_id_or_member_epoch,
            request.group_instance_id,
            uses_member_epoch=context.version >= FIRST_VERSION_WITH_EPOCHS,
        )
        error = await context.services.groups.offsets.commit(request.group_id, sender, offsets)
        if error is not ErrorCode.NONE:
            for answer in accepted:
                answer.error_code = error
    return OffsetCommitResponse(topics=answers)


def _expiry(now_ms: int, retention_ms: int) -> int:
    """Return when an offset expires; a time beyond the field's range means never."""
    if retention_ms < 0 or now_ms + retention_ms > TIME_MAX_MS:
        return NO_EXPIRY
    return now_ms + retention_ms


def _find_topic(context: RequestContext, asked: OffsetCommitRequestTopic) -> Topic | None:
    registry = context.services.registry
    if context.version >= FIRST_VERSION_BY_ID:
        return registry.get_by_id(asked.topic_id)
    return registry.get(asked.name)


def _refusal(
    context: RequestContext, topic: Topic | None, asked: OffsetCommitRequestTopic
) -> ErrorCode:
    """Return why the client may not commit offsets of a topic; an unknown id has no name."""
    if topic is None and context.version >= FIRST_VERSION_BY_ID:
        return ErrorCode.NONE
    name = asked.name if topic is None else topic.name
    return context.refusal(Operation.READ, ResourceType.TOPIC, name)


def _check(
    context: RequestContext, topic: Topic | None, partition: OffsetCommitRequestPartition
) -> ErrorCode:
    if topic is None:
        return (
            ErrorCode.UNKNOWN_TOPIC_ID
            if context.version >= FIRST_VERSION_BY_ID
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    return commit_error(topic, partition, context.services.groups.config.offset_metadata_max_bytes)
