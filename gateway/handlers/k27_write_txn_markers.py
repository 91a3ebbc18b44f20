"""WriteTxnMarkers, key 27, versions 1-2.

Behaviour:
- The coordinator of a transaction sends it to the brokers that lead its partitions or coordinate
  its groups, and `kafka-transactions --abort` to end a transaction that has lost its coordinator.
  Each partition is answered for itself.
- A partition of `__consumer_offsets` stands for the groups of that shard, in which the pending
  offsets of the producer are committed or dropped.
- A marker of an older epoch than the producer's is INVALID_PRODUCER_EPOCH, one of an older
  coordinator than that of the producer's last marker TRANSACTION_COORDINATOR_FENCED. Ids, epochs
  and versions below zero are refused, each with its own code, and not written.

Version notes:
- v2 says which version of the protocol ended the transaction; a marker is the same in both.
"""

from functools import partial

from kledger.gateway.coordinator.transactions.txn_markers import Refused, TransactionMarkers
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kledger.offsets import TopicPartition
from kledger.runtime.concurrent_work import run_some_at_a_time
from kledger.topics import TransactionEnd

KEY = 27
MIN_VERSION = 1
MAX_VERSION = 2

UNKNOWN_COORDINATOR = -1
"""Sent by tools that found no coordinator."""
MARKERS_TOGETHER_MAX = 1_000
"""Of so many transactions the markers are written together, and with one sync."""


async def handle(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write the markers of each transaction."""
    services = context.services
    markers = TransactionMarkers(services.registry, services.groups.offsets)
    results = await run_some_at_a_time(
        partial(_one, markers), request.markers, MARKERS_TOGETHER_MAX
    )
    return WriteTxnMarkersResponse(markers=results)


async def _one(markers: TransactionMarkers, asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    mistake = _mistake(asked)
    errors: Refused = {}
    if mistake is ErrorCode.NONE:
        errors = await markers.write(
            {
                TopicPartition(topic.name, index)
                for topic in asked.topics
                for index in topic.partition_indexes
            },
            TransactionEnd(
                asked.producer_id,
                asked.producer_epoch,
                asked.transaction_result,
                asked.coordinator_epoch,
            ),
        )
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index,
                        error_code=errors.get(TopicPartition(topic.name, index), mistake),
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )


def _mistake(asked: WritableTxnMarker) -> ErrorCode:
    """Return the error of values that no producer, coordinator or version can have."""
    if asked.producer_id < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if asked.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if asked.coordinator_epoch < UNKNOWN_COORDINATOR:
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    if asked.transaction_version < 0:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE
