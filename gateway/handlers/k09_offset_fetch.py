"""OffsetFetch, key 9, versions 1-10.

Behaviour:
- Answers in any state of the group. An unknown group, topic or partition, and a partition without
  a commit, get offset -1 and no error. A null list of topics means all topics with a commit.
- The client must be allowed to describe the group, and each topic; a null list leaves out the
  topics that it may not describe.
- A commit to a topic that was deleted, or deleted and created again, is not found.
- A group of another coordinator is refused as a whole; v1 says so for each partition.
- With require_stable a partition that an open transaction may still change is answered
  UNSTABLE_OFFSET_COMMIT, so that the client retries.

Version notes:
- v2 adds the null list and the error of the whole answer, v5 leader epochs (KIP-320).
- v7 adds require_stable (KIP-447), v8 several groups in one request (KIP-709).
- v9 adds member and epoch (KIP-848): groups of the consumer protocol answer UNKNOWN_MEMBER_ID and
  STALE_MEMBER_EPOCH, classic groups check neither. v10 names topics by id.
"""

from collections.abc import Iterable
from uuid import UUID

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kledger.offsets import CommittedOffset, TopicPartition
from kledger.security.acl_state import Operation, ResourceType
from kledger.topics import Topic

KEY = 9
MIN_VERSION = 1
MAX_VERSION = 10

FIRST_VERSION_WITH_ERROR = 2
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_EPOCHS = 9
FIRST_VERSION_BY_ID = 10
NO_OFFSET = -1


def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Answer for one group, or from v8 for each group asked for."""
    if context.version >= FIRST_VERSION_WITH_GROUPS:
        groups = [_group(context, group, request.require_stable) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    wanted = None
    if request.topics is not None:
        wanted = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted)
    group = _group(context, asked, request.require_stable)
    topics = [_flat(topic) for topic in group.topics]
    if group.error_code and context.version < FIRST_VERSION_WITH_ERROR:
        topics = [_refused(topic, group.error_code) for topic in request.topics or ()]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _group(
    context: RequestContext, asked: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    groups = context.services.groups
    error = context.refusal(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id)
    error = error or groups.error(asked.group_id)
    if not error and context.version >= FIRST_VERSION_WITH_EPOCHS:
        error = groups.offsets.check_fetch(asked.group_id, asked.member_id, asked.member_epoch)
    if error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error)
    wanted = _everything(context, asked.group_id) if asked.topics is None else asked.topics
    topics = [_topic(context, asked.group_id, topic, require_stable) for topic in wanted]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _everything(context: RequestContext, group_id: str) -> Iterable[OffsetFetchRequestTopics]:
    """Return a request for all partitions of existing topics that the group committed to."""
    registry = context.services.registry
    by_topic: dict[str, OffsetFetchRequestTopics] = {}
    for topic_partition, committed in context.services.groups.offsets.all_committed(
        group_id
    ).items():
        topic = registry.get(topic_partition.topic)
        is_shown = topic is not None and context.authorize(
            Operation.DESCRIBE, ResourceType.TOPIC, topic.name, is_audited=False
        )
        if topic is not None and is_shown and topic.id == committed.topic_id:
            asked = by_topic.setdefault(
                topic.name, OffsetFetchRequestTopics(name=topic.name, topic_id=topic.id)
            )
            asked.partition_indexes.append(topic_partition.partition)
    return by_topic.values()


def _topic(
    context: RequestContext,
    group_id: str,
    asked: OffsetFetchRequestTopics,
    require_stable: bool,
) -> OffsetFetchResponseTopics:
    registry = context.services.registry
    missing = ErrorCode.NONE
    topic: Topic | None
    if context.version >= FIRST_VERSION_BY_ID:
        topic = registry.get_by_id(asked.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = registry.get(asked.name)
    if topic is not None or missing is ErrorCode.NONE:
        name = asked.name if topic is None else topic.name
        if refused := context.refusal(Operation.DESCRIBE, ResourceType.TOPIC, name):
            topic, missing = None, refused
    if topic is None:
        partitions = [_nothing(index, missing) for index in asked.partition_indexes]
    else:
        partitions = [
            _partition(
                context, group_id, TopicPartition(topic.name, index), topic.id, require_stable
            )
            for index in asked.partition_indexes
        ]
    return OffsetFetchResponseTopics(
        name=asked.name, topic_id=asked.topic_id, partitions=partitions
    )


def _partition(
    context: RequestContext,
    group_id: str,
    topic_partition: TopicPartition,
    topic_id: UUID,
    require_stable: bool,
) -> OffsetFetchResponsePartitions:
    offsets = context.services.groups.offsets
    if require_stable and offsets.is_unstable(group_id, topic_partition):
        return _nothing(topic_partition.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed: CommittedOffset | None = offsets.committed(group_id, topic_partition)
    if committed is None or committed.topic_id != topic_id:
        return _nothing(topic_partition.partition, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=topic_partition.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _nothing(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error
    )


def _flat(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    """Return the topic in the form of versions before 8."""
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=partition.partition_index,
                committed_offset=partition.committed_offset,
                committed_leader_epoch=partition.committed_leader_epoch,
                metadata=partition.metadata,
                error_code=partition.error_code,
            )
            for partition in topic.partitions
        ],
    )


def _refused(asked: OffsetFetchRequestTopic, error: int) -> OffsetFetchResponseTopic:
    """Return a topic with the error of its group, in the form of version 1."""
    return OffsetFetchResponseTopic(
        name=asked.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error
            )
            for index in asked.partition_indexes
        ],
    )
