"""AlterPartitionReassignments, key 45: move partitions between nodes."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct, field


class ReassignablePartition(Struct):
    """The new replicas of one partition; null cancels its reassignment."""

    partition_index: Int32 = 0
    replicas: list[Int32] | None = None


class ReassignableTopic(Struct):
    """Partitions of one topic."""

    name: str = ""
    partitions: list[ReassignablePartition] = []


class AlterPartitionReassignmentsRequest(ApiMessage, key=45, versions="0-1", flexible="0+"):
    """The new replicas of partitions."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: bool = field(versions="1+", default=True)
    topics: list[ReassignableTopic] = []


class ReassignablePartitionResponse(Struct):
    """Outcome for one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""


class ReassignableTopicResponse(Struct):
    """Outcomes for one topic."""

    name: str = ""
    partitions: list[ReassignablePartitionResponse] = []


class AlterPartitionReassignmentsResponse(ApiMessage, key=45, versions="0-1", flexible="0+"):
    """Outcome for each partition."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: bool = field(versions="1+", default=True)
    error_code: Int16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = []


REQUEST = AlterPartitionReassignmentsRequest
RESPONSE = AlterPartitionReassignmentsResponse
