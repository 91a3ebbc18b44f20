"""OffsetDelete, key 47, version 0.

Behaviour:
- Offsets of topics to which no member subscribes are deleted; others are GROUP_SUBSCRIBED_TO_TOPIC.
  If the subscription of a classic member cannot be parsed, the group counts as subscribed to all.
- The client must be allowed to delete the group, and to read the topic of each partition.
- A group that has members and is not of type `consumer` is NON_EMPTY_GROUP, an unknown one
  GROUP_ID_NOT_FOUND.
- A partition that exists but was never committed is deleted successfully.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kledger.offsets import TopicPartition
from kledger.security.acl_state import Operation, ResourceType

KEY = 47
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete the offsets that no member uses, answer each partition."""
    if refused := context.refusal(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=refused)
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    answers = []
    topic_partitions: list[TopicPartition] = []
    existing: list[OffsetDeleteResponsePartition] = []
    for asked in request.topics:
        refused = context.refusal(Operation.READ, ResourceType.TOPIC, asked.name)
        topic = None if refused else context.services.registry.get(asked.name)
        partitions = []
        for partition in asked.partitions:
            index = partition.partition_index
            answer = OffsetDeleteResponsePartition(partition_index=index)
            partitions.append(answer)
            if topic is not None and 0 <= index < topic.partition_count:
                topic_partitions.append(TopicPartition(topic.name, index))
                existing.append(answer)
            else:
                answer.error_code = refused or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers.append(OffsetDeleteResponseTopic(name=asked.name, partitions=partitions))
    error, errors = await context.services.groups.offsets.delete(request.group_id, topic_partitions)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error)
    for answer, partition_error in zip(existing, errors, strict=True):
        answer.error_code = partition_error
    return OffsetDeleteResponse(topics=answers)
