"""DescribeQuorum, key 55, versions 0-2 (KIP-595).

Behaviour:
- Metadata is kept by this node alone: it leads partition 0 of the metadata log and is its only
  voter; there are no observers. Its end is the number of changes to topics since the start, as
  there is no log of that name.
- Any other topic or partition is UNKNOWN_TOPIC_OR_PARTITION, and so is everything that is asked for
  beside another one.

Version notes:
- v1 adds the times of the last fetch, which for the leader is now (KIP-836).
- v2 adds directory ids, zero here, and where voters listen (KIP-853): this node's one listener.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k55_describe_quorum import (
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

METADATA_PARTITION = "__cluster_metadata", 0


def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describe the quorum of one."""
    config = context.services.config
    is_found = _asked(request) == [METADATA_PARTITION]
    topics = [
        DescribedTopic(
            topic_name=topic.topic_name,
            partitions=[
                _described(context, each.partition_index)
                if is_found
                else _unknown(topic.topic_name, each.partition_index)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    here = Listener(name="PLAINTEXT", host=config.advertised_host, port=config.advertised_port)
    return DescribeQuorumResponse(
        error_message=None,
        topics=topics,
        nodes=[Node(node_id=config.node_id, listeners=[here])] if is_found else [],
    )


def _asked(request: DescribeQuorumRequest) -> list[tuple[str, int]]:
    return [
        (topic.topic_name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]


def _unknown(name: str, index: int) -> DescribedPartition:
    topic, partition = METADATA_PARTITION
    return DescribedPartition(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"This server does not host this topic-partition: {name}-{index}, expected "
        f"{topic}-{partition} alone",
    )


def _described(context: RequestContext, index: int) -> DescribedPartition:
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
