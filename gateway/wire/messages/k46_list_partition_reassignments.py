"""ListPartitionReassignments, key 46: which partitions are on the move."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsRequest(ApiMessage, key=46, versions="0", flexible="0+"):
    """Partitions asked about; null stands for all."""

    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Struct):
    """A partition on the move."""

    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class OngoingTopicReassignment(Struct):
    """Partitions of one topic that are on the move."""

    name: str = ""
    partitions: list[OngoingPartitionReassignment] = []


class ListPartitionReassignmentsResponse(ApiMessage, key=46, versions="0", flexible="0+"):
    """What is on the move."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = []


REQUEST = ListPartitionReassignmentsRequest
RESPONSE = ListPartitionReassignmentsResponse
