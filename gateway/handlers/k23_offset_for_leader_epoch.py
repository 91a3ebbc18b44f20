"""OffsetForLeaderEpoch, key 23, versions 2-4.

Behaviour:
- `LeaderEpochHistory.end_of` has the cases. An epoch that is newer than all is -1, -1 without an
  error, which a client must not read as a truncation. No leader truncates here.
- A client that may not act for the cluster must be allowed to describe the topic.
- The epoch that the client takes for the current one is checked first: 74 if older, 75 if newer.

Version notes:
- v3 carries the replica id, which is ignored: only consumers ask.
"""

from kledger.gateway.api_errors import error_code_of
from kledger.gateway.fetch.fetch_plan import leader_epoch_error
from kledger.gateway.metadata.partition_lookup import LogOrOpenError, open_partitions_by_name
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kledger.security.acl_state import Operation, ResourceType
from kledger.topics import TopicsError

KEY = 23
MIN_VERSION = 2
MAX_VERSION = 4

NO_EPOCH = -1


async def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Return for each partition the end offset of the requested epoch."""
    is_broker = context.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, is_audited=False)
    refused = {
        asked.topic: ErrorCode.NONE
        if is_broker
        else context.refusal(Operation.DESCRIBE, ResourceType.TOPIC, asked.topic)
        for asked in request.topics
    }
    logs = await open_partitions_by_name(
        context.services.registry,
        [
            (asked.topic, one.partition)
            for asked in request.topics
            if not refused[asked.topic]
            for one in asked.partitions
        ],
    )
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=asked.topic,
                partitions=[
                    EpochEndOffset(partition=one.partition, error_code=refused[asked.topic])
                    if refused[asked.topic]
                    else _epoch_end(logs[asked.topic, one.partition], one)
                    for one in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )


def _epoch_end(log: LogOrOpenError, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    if isinstance(log, TopicsError):
        answer.error_code = error_code_of(log)
        return answer
    answer.error_code = leader_epoch_error(asked.current_leader_epoch, log.leader_epoch)
    if answer.error_code or asked.leader_epoch == NO_EPOCH:
        return answer
    found = log.epochs.end_of(
        asked.leader_epoch, log_start_offset=log.log_start_offset, end_offset=log.high_watermark
    )
    if found is not None:
        answer.leader_epoch, answer.end_offset = found
    return answer
