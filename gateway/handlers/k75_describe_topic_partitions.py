"""DescribeTopicPartitions, key 75, version 0.

Behaviour:
- Topics are sorted by name; an empty list means all of them.
- A page holds at most ``response_partition_limit`` partitions (never more than
  ``PARTITIONS_PER_PAGE_MAX``); the cursor names the next one. When all topics are described, a
  cursor of a topic that was deleted continues with the next name.
- A cursor of a topic that is not in the request, or with a negative partition, is INVALID_REQUEST
  for every topic of the request.
- Topics that the client may not describe get an entry with the error alone, behind the others, when
  they are named, and none when they are not.
- Unknown topics and bad names get an entry each, without partitions.
- The lists of eligible leaders are empty, never null: clients iterate over them (KIP-966).
"""

from collections.abc import Iterator

from kledger.gateway.assignments import leaders_of
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kledger.security.acl_state import Operation, ResourceType
from kledger.topics import InvalidTopicName, Topic
from kledger.topics.topic_names import check_name, resolve_name

KEY = 75
MIN_VERSION = 0
MAX_VERSION = 0

PARTITIONS_PER_PAGE_MAX = 2_000


def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Answer one page."""
    if not _is_possible(request):
        return _refuse_all(request)
    response = DescribeTopicPartitionsResponse()
    refused: list[DescribeTopicPartitionsResponseTopic] = []
    is_listing = not request.topics
    budget = max(1, min(request.response_partition_limit, PARTITIONS_PER_PAGE_MAX))
    for name, first in _starts(context, request):
        if not context.authorize(
            Operation.DESCRIBE, ResourceType.TOPIC, name, is_audited=not is_listing
        ):
            refused += [] if is_listing else [_refused(name)]
            continue
        topic = context.services.registry.get(name)
        if topic is None:
            response.topics.append(_unknown(context, name))
            continue
        if budget <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        end = min(topic.partition_count, first + budget)
        response.topics.append(_page(context, topic, range(first, end)))
        budget -= end - first
        if end < topic.partition_count:
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    response.topics += refused
    return response


def _is_possible(request: DescribeTopicPartitionsRequest) -> bool:
    """Return whether the cursor, if there is one, fits this request."""
    cursor = request.cursor
    if cursor is None:
        return True
    names = {asked.name for asked in request.topics}
    return cursor.partition_index >= 0 and (not names or cursor.topic_name in names)


def _refuse_all(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name=asked.name
            )
            for asked in request.topics
        ]
    )


def _starts(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Iterator[tuple[str, int]]:
    """Yield (topic name, first partition) from the cursor on, ascending by name."""
    names = {asked.name for asked in request.topics} or {
        topic.name for topic in context.services.registry.all()
    }
    cursor = request.cursor
    for name in sorted(names):
        if cursor is None or name > cursor.topic_name:
            yield name, 0
        elif name == cursor.topic_name:
            yield name, cursor.partition_index


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name
    )


def _unknown(context: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_name(resolve_name(name))
    except InvalidTopicName:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, name),
    )


def _page(
    context: RequestContext, topic: Topic, indexes: range
) -> DescribeTopicPartitionsResponseTopic:
    leaders = leaders_of(topic, context.services.config.node_id)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=leaders[index],
                leader_epoch=topic.leader_epoch(index),
                replica_nodes=[leaders[index]],
                isr_nodes=[leaders[index]],
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for index in indexes
        ],
        topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, topic.name),
    )
