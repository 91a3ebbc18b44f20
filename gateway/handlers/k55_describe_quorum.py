"""DescribeQuorum, key 55, versions 0-2 (KIP-595).

Behaviour:
- Metadata is kept by this node alone: it leads partition 0 of the metadata log and is its only
  voter; there are no observers. Its end is the number of changes to topics since the start, as
  there is no log of that name.
- Any other topic or partition is UNKNOWN_TOPIC_OR_PARTITION.

Version notes:
- v1 adds the times of the last fetch, which for the leader is now (KIP-836).
- v2 adds directory ids, zero here, and where voters listen (KIP-853): this node's one listener.
"""

from gateway.context import RequestContext
from gateway.wire.error_codes import ErrorCode
from gateway.wire.messages.k55_describe_quorum import (
    DescribedPartition,
    DescribedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
)

KEY = 55
MIN_VERSION = 0
MAX_VERSION = 2

METADATA_TOPIC = "__cluster_metadata"


def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describe the quorum of one."""
    config = context.services.config
    topics = [
        DescribedTopic(
            topic_name=topic.topic_name,
            partitions=[
                _described(context, topic.topic_name, each.partition_index)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    here = Listener(name="PLAINTEXT", host=config.advertised_host, port=config.advertised_port)
    is_found = any(not each.error_code for topic in topics for each in topic.partitions)
    return DescribeQuorumResponse(
        error_message=None,
        topics=topics,
        nodes=[Node(node_id=config.node_id, listeners=[here])] if is_found else [],
    )


def _described(context: RequestContext, name: str, index: int) -> DescribedPartition:
    if (name, index) != (METADATA_TOPIC, 0):
        return DescribedPartition(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"expected {METADATA_TOPIC}-0, got {name}-{index}",
        )
    services = context.services
    now_ms, end = services.clock.now_ms(), services.registry.epoch
    alone = ReplicaState(
        replica_id=services.config.node_id,
        log_end_offset=end,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return DescribedPartition(
        partition_index=index,
        error_message=None,
        leader_id=services.config.node_id,
        high_watermark=end,
        current_voters=[alone],
    )
