"""ListPartitionReassignments, key 46: list reassignments in progress."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsRequest(ApiMessage, key=46, versions="0", flexible="0+"):
    """The requested partitions; null means all."""

    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Struct):
    """One partition that is being reassigned."""

    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class OngoingTopicReassignment(Struct):
    """Partitions of one topic that are being reassigned."""

    name: str = ""
    partitions: list[OngoingPartitionReassignment] = []


class ListPartitionReassignmentsResponse(ApiMessage, key=46, versions="0", flexible="0+"):
    """The reassignments in progress."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = []


REQUEST = ListPartitionReassignmentsRequest
RESPONSE = ListPartitionReassignmentsResponse
