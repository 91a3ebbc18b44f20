"""WriteTxnMarkers, key 27, versions 1-2.

Behaviour:
- Brokers send it to each other; here `kafka-transactions --abort` does, to end a transaction that
  has lost its coordinator. Each partition is answered for itself.
- A marker of an older epoch than the producer's is INVALID_PRODUCER_EPOCH. Ids, epochs and
  versions below zero are refused, each with a code of its own, and not written.

Version notes:
- v2 says which version of the protocol ended the transaction; a marker is the same in both.
"""

from kledger.gateway.api_errors import error_code_of
from kledger.gateway.coordinator.transactions.txn_markers import TransactionMarkers
from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
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
from kledger.topics import TopicsError

KEY = 27
MIN_VERSION = 1
MAX_VERSION = 2

UNKNOWN_COORDINATOR = -1
"""Sent by tools that found no coordinator."""


async def handle(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write the markers of one producer after those of another."""
    markers = TransactionMarkers(context.services.registry)
    return WriteTxnMarkersResponse(markers=[await _one(markers, one) for one in request.markers])


async def _one(markers: TransactionMarkers, asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    mistake = _mistake(asked)
    refused: dict[TopicPartition, TopicsError] = {}
    if mistake is ErrorCode.NONE:
        refused = await markers.write(
            {
                TopicPartition(topic.name, index)
                for topic in asked.topics
                for index in topic.partition_indexes
            },
            ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
            is_commit=asked.transaction_result,
            coordinator_epoch=asked.coordinator_epoch,
        )
    errors = {topic_partition: error_code_of(error) for topic_partition, error in refused.items()}
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
