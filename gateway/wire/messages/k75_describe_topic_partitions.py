"""DescribeTopicPartitions, key 75: partitions of topics, page by page."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct


class TopicRequest(Struct):
    """A requested topic."""

    name: str = ""


class Cursor(Struct):
    """Where to continue: the first partition not yet described."""

    topic_name: str = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(ApiMessage, key=75, versions="0", flexible="0+"):
    """The requested topics, a limit, and where to continue."""

    topics: list[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Struct):
    """One partition; the two ELR lists are empty, not null."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32] = []


class DescribeTopicPartitionsResponseTopic(Struct):
    """One topic and some of its partitions."""

    error_code: Int16 = 0
    name: str | None = ""
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponse(ApiMessage, key=75, versions="0", flexible="0+"):
    """Partitions, and a cursor when there are more."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None


REQUEST = DescribeTopicPartitionsRequest
RESPONSE = DescribeTopicPartitionsResponse
