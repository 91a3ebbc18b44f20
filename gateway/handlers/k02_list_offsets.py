"""ListOffsets, key 2, versions 1-11.

Behaviour:
- Both ends of an open log are answered from memory, because Spark asks for them after every poll.
- The end is the high watermark, or the last stable offset under read_committed.
- A time: the first record at or after it, with the record's own timestamp; -1, -1 without an error
  if there is none. -3: a record with the greatest timestamp.
- -4: the first offset with a primary copy; -5: the last one in the tier, -1 without an error if
  there is none; -6: the first that is not in the tier, -1 without remote.storage.enable.
- An offset comes with the leader epoch under which it was written, the end with the current one.
- A topic that the client may not describe is TOPIC_AUTHORIZATION_FAILED, whether it exists or not.
- A repeated partition is INVALID_REQUEST each time; an isolation level that does not exist is
  UNKNOWN_SERVER_ERROR, as in Kafka.

Version notes:
- v2 isolation level (KIP-98), v4 leader epochs (KIP-320), v7 -3 (KIP-734), v8 -4 (KIP-405),
  v9 -5 (KIP-1005), v10 timeout, v11 -6 (KIP-1023). A special time that the version does not have is
  UNSUPPORTED_VERSION for its partition.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from kledger.gateway.api_errors import error_code_of
from kledger.gateway.fetch.fetch_plan import ISOLATION_LEVELS, leader_epoch_error
from kledger.gateway.metadata.partition_lookup import open_partitions
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kledger.security.acl_state import Operation, ResourceType
from kledger.topics import PartitionLog, Topic, TopicsError

KEY = 2
MIN_VERSION = 1
MAX_VERSION = 11

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
SPECIAL_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = 1


def handle(
    context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """Answer at once from memory, or after searching the logs."""
    response = ListOffsetsResponse()
    seen = Counter(
        (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
    )
    is_complete = True
    for asked in request.topics:
        refused = context.refusal(Operation.DESCRIBE, ResourceType.TOPIC, asked.name)
        topic = None if refused else context.services.registry.get(asked.name)
        answers = []
        for one in asked.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=one.partition_index)
            answers.append(answer)
            if refused:
                answer.error_code = refused
            elif seen[asked.name, one.partition_index] > 1:
                answer.error_code = ErrorCode.INVALID_REQUEST
            elif not _answer_from_memory(context.version, request, topic, one, answer):
                is_complete = False
        response.topics.append(ListOffsetsTopicResponse(name=asked.name, partitions=answers))
    return response if is_complete else _search(context, request, response)


def _answer_from_memory(
    version: int,
    request: ListOffsetsRequest,
    topic: Topic | None,
    asked: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> bool:
    """Fill in the answer; return False if the log must be opened or searched for it."""
    time = asked.timestamp
    if time < 0 and version < SPECIAL_SINCE.get(time, version + 1):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return True
    if topic is None or not 0 <= asked.partition_index < topic.partition_count:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return True
    if request.isolation_level not in ISOLATION_LEVELS:
        answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return True
    log = topic.partition(asked.partition_index)
    if log is None:
        return False
    answer.error_code = leader_epoch_error(asked.current_leader_epoch, log.leader_epoch)
    if answer.error_code:
        return True
    if time in _ENDS:
        offset = _ENDS[time](log, request)
        if offset is not None:
            answer.offset = offset
            is_latest = time == LATEST
            answer.leader_epoch = log.leader_epoch if is_latest else log.epochs.epoch_of(offset)
        return True
    return False


async def _search(
    context: RequestContext, request: ListOffsetsRequest, response: ListOffsetsResponse
) -> ListOffsetsResponse:
    """Open closed partitions and search for times; the response has all other answers already."""
    unanswered = [
        (topic, asked, answer)
        for asked_topic, answers in zip(request.topics, response.topics, strict=True)
        if (topic := context.services.registry.get(asked_topic.name)) is not None
        for asked, answer in zip(asked_topic.partitions, answers.partitions, strict=True)
        if not answer.error_code and answer.offset < 0
    ]
    partitions = [(topic, asked.partition_index) for topic, asked, _ in unanswered]
    logs = await open_partitions(partitions)
    for partition, (topic, asked, answer) in zip(partitions, unanswered, strict=True):
        log = logs[partition]
        try:
            if isinstance(log, TopicsError):
                raise log
            if not _answer_from_memory(context.version, request, topic, asked, answer):
                await _search_log(log, request, asked.timestamp, answer)
        except TopicsError as error:
            answer.error_code = error_code_of(error)
    return response


async def _search_log(
    log: PartitionLog,
    request: ListOffsetsRequest,
    time: int,
    answer: ListOffsetsPartitionResponse,
) -> None:
    if time == MAX_TIMESTAMP:
        found = await log.max_timestamp_offset()
    else:
        found = await log.offset_for_timestamp(time)
    if found is not None and found[1] < _readable_end(log, request):
        answer.timestamp, answer.offset = found
        answer.leader_epoch = log.epochs.epoch_of(answer.offset)


def _earliest_local(log: PartitionLog) -> int:
    return max(log.log_start_offset, log.offload.local_start_offset)


def _latest_tiered(log: PartitionLog) -> int | None:
    tiered = log.offload.latest_tiered_offset
    return None if tiered is None or tiered < log.log_start_offset else tiered


def _earliest_pending_upload(log: PartitionLog) -> int | None:
    if not log.config.is_remote_storage_enabled:
        return None
    tiered = _latest_tiered(log)
    return log.log_start_offset if tiered is None else tiered + 1


def _readable_end(log: PartitionLog, request: ListOffsetsRequest) -> int:
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


_ENDS: Mapping[int, Callable[[PartitionLog, ListOffsetsRequest], int | None]] = {
    LATEST: _readable_end,
    EARLIEST: lambda log, _: log.log_start_offset,
    EARLIEST_LOCAL: lambda log, _: _earliest_local(log),
    LATEST_TIERED: lambda log, _: _latest_tiered(log),
    EARLIEST_PENDING_UPLOAD: lambda log, _: _earliest_pending_upload(log),
}
"""Of the special times those that an open log answers from memory; None: there is none."""
