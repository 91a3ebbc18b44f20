"""ElectLeaders, key 43, versions 0-2.

Behaviour:
- This node leads every partition, preferred or not: ELECTION_NOT_NEEDED for each, which Kafka's
  tool counts as done. Unknown topics and partitions are UNKNOWN_TOPIC_OR_PARTITION.
- A null list stands for all partitions, of which only those that elected are told: none, so each
  topic comes with an empty list, as in Apache Kafka.
- A type of election that does not exist is INVALID_REQUEST for each partition, and for the whole if
  there is one.

Version notes:
- v1 adds the type of election (KIP-460): preferred (0) and unclean (1).
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

KEY = 43
MIN_VERSION = 0
MAX_VERSION = 2

ELECTION_TYPES = (0, 1)


def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Say that every partition has the right leader."""
    if request.topic_partitions is None:
        topics = context.services.registry.all()
        return ElectLeadersResponse(
            replica_election_results=[ReplicaElectionResult(topic=one.name) for one in topics]
        )
    is_refused = request.election_type not in ELECTION_TYPES and any(
        asked.partitions for asked in request.topic_partitions
    )
    return ElectLeadersResponse(
        error_code=ErrorCode.INVALID_REQUEST if is_refused else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    _outcome(context, request.election_type, asked.topic, index)
                    for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions
        ],
    )


def _outcome(context: RequestContext, election_type: int, name: str, index: int) -> PartitionResult:
    topic = context.services.registry.get(name)
    if election_type not in ELECTION_TYPES:
        code = ErrorCode.INVALID_REQUEST
        message = f"Unknown election type {election_type}, expected 0 or 1"
    elif topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = f"No such topic as {name}: it does not exist"
    elif not 0 <= index < topic.partition_count:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = f"No such partition as {name}-{index}: it does not exist"
    else:
        code = ErrorCode.ELECTION_NOT_NEEDED
        node_id = context.services.config.node_id
        message = (
            f"Leader election not needed for topic partition {name}-{index}: "
            f"node {node_id} leads it."
        )
    return PartitionResult(partition_id=index, error_code=code, error_message=message)
