"""DescribeProducers, key 61, version 0.

Behaviour:
- The producers that each partition remembers: idempotent and transactional ones. Those with an open
  transaction say where it began.
- Unknown topics and partitions are UNKNOWN_TOPIC_OR_PARTITION, each for itself; a name that no
  topic can have is INVALID_TOPIC_EXCEPTION.
"""

from gateway.context import RequestContext
from gateway.error_map import error_code_of
from gateway.metadata_topics import absence
from gateway.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from topics import Topic, TopicsError

KEY = 61
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the producers of each partition."""
    topics = []
    for asked in request.topics:
        topic = context.services.registry.get(asked.name)
        partitions = [
            await _partition(topic, asked.name, index) for index in asked.partition_indexes
        ]
        topics.append(TopicResponse(name=asked.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


async def _partition(topic: Topic | None, name: str, index: int) -> PartitionResponse:
    try:
        if topic is None:
            raise absence(name)
        log = await topic.open_partition(index)
    except TopicsError as error:
        return PartitionResponse(
            partition_index=index, error_code=error_code_of(error), error_message=str(error)
        )
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
                last_timestamp=entry.active_ms,
                coordinator_epoch=0 if entry.transaction_start >= 0 else -1,
                current_txn_start_offset=entry.transaction_start,
            )
            for producer_id, entry in log.producers().items()
        ],
    )
