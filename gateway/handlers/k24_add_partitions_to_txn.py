"""AddPartitionsToTxn, key 24, versions 0-5.

Behaviour:
- The transaction begins with its first partition. All of them are added, or none: if one does not
  exist it gets its own error, and the others OPERATION_NOT_ATTEMPTED.
- The client must be allowed to write to the transactional id, and to each topic. From v4 on it must
  be allowed to act for the cluster instead; the router asks for that.
- Verifying (v4) adds nothing: a partition that does not belong to the open transaction is
  TRANSACTION_ABORTABLE.
- From v4 on, a partition of `__consumer_offsets` stands for the groups of that shard.

Version notes:
- v2 knows PRODUCER_FENCED, older versions get INVALID_PRODUCER_EPOCH (KIP-588).
- v4 carries several transactions, as brokers send them (KIP-890). v5 adds partitions for clients
  of transaction.version 2. Those never send it: Produce 12 adds partitions implicitly.
"""

from collections.abc import Sequence
from functools import partial

from kledger.gateway.api_errors import without_fencing
from kledger.gateway.coordinator.coordinator_shards_state import OFFSETS_TOPIC
from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kledger.offsets import TopicPartition
from kledger.runtime.concurrent_work import run_some_at_a_time
from kledger.security.acl_state import Operation, ResourceType

KEY = 24
MIN_VERSION = 0
MAX_VERSION = 5

FENCED_SINCE = 2
BATCHED_SINCE = 4
RISING_EPOCHS_SINCE = 5
TRANSACTIONS_TOGETHER_MAX = 1_000
"""So many transactions of one request are changed together, and with one sync."""


async def handle(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions, or verify that they were added."""
    if context.version >= BATCHED_SINCE:
        transactions = request.transactions
        found = await run_some_at_a_time(
            partial(_one, context), transactions, TRANSACTIONS_TOGETHER_MAX
        )
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id, topic_results=topic_results
                )
                for one, topic_results in zip(transactions, found, strict=True)
            ]
        )
    one = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _one(context, one))


async def _one(
    context: RequestContext, asked: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    topic_partitions = [
        TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions
    ]
    errors = {each: _partition_error(context, each) for each in topic_partitions}
    producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
    transactions = context.services.transactions
    if refused := _transactional_id_refusal(context, asked.transactional_id):
        errors = dict.fromkeys(topic_partitions, refused)
    elif not asked.transactional_id:
        errors = dict.fromkeys(topic_partitions, ErrorCode.INVALID_REQUEST)
    elif any(errors.values()):
        errors = {
            topic_partition: error or ErrorCode.OPERATION_NOT_ATTEMPTED
            for topic_partition, error in errors.items()
        }
    elif asked.verify_only:
        errors = {
            topic_partition: transactions.verify(asked.transactional_id, producer, topic_partition)
            for topic_partition in topic_partitions
        }
    else:
        added = await transactions.add(
            asked.transactional_id,
            producer,
            partitions=topic_partitions,
            is_v2=context.version >= RISING_EPOCHS_SINCE,
        )
        if context.version < FENCED_SINCE:
            added = without_fencing(added)
        errors = dict.fromkeys(topic_partitions, added)
    return _results(asked.topics, errors)


def _transactional_id_refusal(context: RequestContext, transactional_id: str) -> ErrorCode:
    if context.version >= BATCHED_SINCE:
        return ErrorCode.NONE
    return context.refusal(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _partition_error(context: RequestContext, topic_partition: TopicPartition) -> ErrorCode:
    if context.version < BATCHED_SINCE and (
        refused := context.refusal(Operation.WRITE, ResourceType.TOPIC, topic_partition.topic)
    ):
        return refused
    services, count = context.services, 0
    if topic_partition.topic == OFFSETS_TOPIC and context.version >= BATCHED_SINCE:
        count = services.groups.shards.count
    elif topic := services.registry.get(topic_partition.topic):
        count = topic.partition_count
    exists = 0 <= topic_partition.partition < count
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], errors: dict[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=errors[TopicPartition(topic.name, index)],
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
