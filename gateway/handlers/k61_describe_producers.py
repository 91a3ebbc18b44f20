"""DescribeProducers, key 61, version 0.

Behaviour:
- Lists the producers that each partition knows, idempotent and transactional ones, with the first
  offset of an open transaction, and the epoch of the coordinator that has ended the last one.
- The client must be allowed to read the topic.
- An unknown topic or partition is UNKNOWN_TOPIC_OR_PARTITION, an invalid name
  INVALID_TOPIC_EXCEPTION; the others are answered.
"""

from kledger.gateway.api_errors import ApiError, code_and_message_of
from kledger.gateway.metadata.partition_lookup import LogOrOpenError, open_partitions_by_name
from kledger.gateway.metadata.topic_descriptions import missing_topic_error
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kledger.security.acl_state import Operation, ResourceType
from kledger.topics import InvalidTopicName, TopicsError, UnknownTopic

KEY = 61
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the producers of each partition."""
    refused = {asked.name: _refusal(context, asked.name) for asked in request.topics}
    logs = await open_partitions_by_name(
        context.services.registry,
        [
            (asked.name, index)
            for asked in request.topics
            if refused[asked.name] is None
            for index in asked.partition_indexes
        ],
    )
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=asked.name,
                partitions=[
                    _partition(asked.name, index, refused[asked.name] or logs[asked.name, index])
                    for index in asked.partition_indexes
                ],
            )
            for asked in request.topics
        ]
    )


def _refusal(context: RequestContext, name: str) -> ApiError | None:
    """Return why the client may not see a topic; an invalid name is answered as such."""
    if isinstance(missing_topic_error(name), InvalidTopicName):
        return None
    try:
        context.check(Operation.READ, ResourceType.TOPIC, name)
    except ApiError as refused:
        return refused
    return None


def _partition(name: str, index: int, log: LogOrOpenError | ApiError) -> PartitionResponse:
    if isinstance(log, TopicsError | ApiError):
        error = missing_topic_error(name) if isinstance(log, UnknownTopic) else log
        code, message = code_and_message_of(error)
        return PartitionResponse(partition_index=index, error_code=code, error_message=message)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
                last_timestamp=entry.active_ms,
                coordinator_epoch=log.coordinator_epochs.get(
                    producer_id, 0 if entry.transaction_start >= 0 else -1
                ),
                current_txn_start_offset=entry.transaction_start,
            )
            for producer_id, entry in log.producers().items()
        ],
    )
