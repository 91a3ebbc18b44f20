"""DescribeProducers, key 61: the producers of partitions."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct


class TopicRequest(Struct):
    """Partitions of one topic."""

    name: str = ""
    partition_indexes: list[Int32] = []


class DescribeProducersRequest(ApiMessage, key=61, versions="0", flexible="0+"):
    """Partitions to describe."""

    topics: list[TopicRequest] = []


class ProducerState(Struct):
    """The state of one producer in a partition."""

    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Struct):
    """Producers of one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = []


class TopicResponse(Struct):
    """Producers of one topic."""

    name: str = ""
    partitions: list[PartitionResponse] = []


class DescribeProducersResponse(ApiMessage, key=61, versions="0", flexible="0+"):
    """Producers of each partition."""

    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []


REQUEST = DescribeProducersRequest
RESPONSE = DescribeProducersResponse
