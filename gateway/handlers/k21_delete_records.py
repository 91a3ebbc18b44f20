"""DeleteRecords, key 21, versions 0-2.

Behaviour:
- Moves the log start of a partition up to an offset; -1 means the high watermark.
- The client must be allowed to delete the topic.
- The new log start is durable before the answer; records below it are never read again, and
  ledgers without other records are deleted.
- An offset below the log start changes nothing, and the answer has the log start; one above the
  high watermark is OFFSET_OUT_OF_RANGE. A topic that is only compacted is POLICY_VIOLATION.
"""

from kledger.gateway.api_errors import error_code_of
from kledger.gateway.metadata.partition_lookup import LogOrOpenError, open_partitions_by_name
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kledger.security.acl_state import Operation, ResourceType
from kledger.topics import TopicsError

KEY = 21
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Move the log start of each partition of the request."""
    refused = {
        asked.name: context.refusal(Operation.DELETE, ResourceType.TOPIC, asked.name)
        for asked in request.topics
    }
    logs = await open_partitions_by_name(
        context.services.registry,
        [
            (asked.name, one.partition_index)
            for asked in request.topics
            if not refused[asked.name]
            for one in asked.partitions
        ],
    )
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=asked.name,
                partitions=[
                    _refused(one.partition_index, refused[asked.name])
                    if refused[asked.name]
                    else await _delete(logs[asked.name, one.partition_index], one)
                    for one in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )


async def _delete(
    log: LogOrOpenError, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    try:
        if isinstance(log, TopicsError):
            raise log
        if log.config.is_compacted and not log.config.is_deleted_by_age:
            return _refused(index, ErrorCode.POLICY_VIOLATION)
        low_watermark = await log.delete_records(asked.offset)
    except TopicsError as error:
        return _refused(index, error_code_of(error))
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)


def _refused(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=code)
