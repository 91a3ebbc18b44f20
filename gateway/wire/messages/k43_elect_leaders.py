"""ElectLeaders, key 43: elect the leaders of partitions."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct, field


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = ""
    partitions: list[Int32] = []


class ElectLeadersRequest(ApiMessage, key=43, versions="0-2", flexible="2+"):
    """The partitions that elect a leader; null means all."""

    election_type: Int8 = field(versions="1+", default=0)
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60000


class PartitionResult(Struct):
    """Outcome for one partition."""

    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""


class ReplicaElectionResult(Struct):
    """Outcomes for one topic."""

    topic: str = ""
    partition_result: list[PartitionResult] = []


class ElectLeadersResponse(ApiMessage, key=43, versions="0-2", flexible="2+"):
    """Outcome for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(versions="1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = []


REQUEST = ElectLeadersRequest
RESPONSE = ElectLeadersResponse
