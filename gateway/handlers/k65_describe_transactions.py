"""DescribeTransactions, key 65, version 0.

Behaviour:
- One answer for each transactional id asked for; TRANSACTIONAL_ID_NOT_FOUND where there is none.
- The client must be allowed to describe the transactional id; topics that it may not describe are
  left out.
- Partitions are those of the open transaction, or those without the marker of its end yet. A
  group with offsets in it has no partition here; Kafka shows one of its offsets topic.
"""

from kledger.gateway.coordinator.transactions.txn_record import TxnRecord
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kledger.security.acl_state import Operation, ResourceType

KEY = 65
MIN_VERSION = 0
MAX_VERSION = 0


def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[_state(context, one) for one in request.transactional_ids]
    )


def _state(context: RequestContext, transactional_id: str) -> TransactionState:
    refused = context.refusal(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    if refused:
        return TransactionState(transactional_id=transactional_id, error_code=refused)
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    transactions = context.services.transactions
    if error := transactions.shards.error(transactional_id):
        return TransactionState(transactional_id=transactional_id, error_code=error)
    record = transactions.record(transactional_id)
    if record is None:
        return TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=record.state.value,
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.start_ms,
        producer_id=record.producer_id,
        producer_epoch=record.epoch,
        topics=_topics(context, record),
    )


def _topics(context: RequestContext, record: TxnRecord) -> list[TopicData]:
    found: dict[str, TopicData] = {}
    for topic_partition in sorted(record.partitions):
        topic = found.setdefault(topic_partition.topic, TopicData(topic=topic_partition.topic))
        topic.partitions.append(topic_partition.partition)
    return [
        topic
        for topic in found.values()
        if context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic, is_audited=False)
    ]
