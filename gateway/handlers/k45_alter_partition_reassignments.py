"""AlterPartitionReassignments, key 45, versions 0-1.

Behaviour:
- There is one node, and every partition is on it. To move a partition there is done at once; any
  other node, one that stands twice, or none at all is INVALID_REPLICA_ASSIGNMENT.
- Null takes back a move that is going on: none ever is, NO_REASSIGNMENT_IN_PROGRESS.
- Unknown topics and partitions are UNKNOWN_TOPIC_OR_PARTITION.

Version notes:
- v1 can forbid to change the replication factor (KIP-860), which is 1 before and after.
"""

from kledger.gateway.api_errors import ApiError
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

KEY = 45
MIN_VERSION = 0
MAX_VERSION = 1


def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Say of each partition whether it is where it belongs."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_outcome(context, topic.name, each) for each in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _outcome(
    context: RequestContext, name: str, asked: ReassignablePartition
) -> ReassignablePartitionResponse:
    outcome = ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_message=None
    )
    try:
        _check_partition(context, name, asked.partition_index)
        _check_replicas(asked.replicas, context.services.config.node_id)
    except ApiError as refused:
        outcome.error_code = refused.code
        outcome.error_message = str(refused) or None
    return outcome


def _check_partition(context: RequestContext, name: str, index: int) -> None:
    topic = context.services.registry.get(name)
    if topic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
        )
    if not 0 <= index < topic.partition_count:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
        )


def _check_replicas(replicas: list[int] | None, node_id: int) -> None:
    if replicas is None:
        # Kafka's tool takes this code without words for "nothing to take back".
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")
    if replicas != [node_id]:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes {replicas}: expected node {node_id} alone, "
            "as no such broker is registered.",
        )
