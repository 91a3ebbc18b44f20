"""TxnOffsetCommit, key 28, versions 0-5.

Behaviour:
- The client must be allowed to write to the transactional id, and to read the group and each topic.
- Each partition's topic, index and length of metadata are checked; the valid ones are stored in one
  atomic write, and are invisible until the transaction is committed.
- The group accepts or rejects them as a whole; a request without a member is accepted (KIP-447).
- The coordinator of the group serves the request. If another broker coordinates the transaction,
  this broker asks it whether the transaction includes the partition of `__consumer_offsets` that
  the group belongs to. Without an answer the client gets COORDINATOR_LOAD_IN_PROGRESS, as in Kafka,
  and retries here.

Version notes:
- v2 adds the leader epoch, v3 member, generation and instance (KIP-447).
- A group that was not added is INVALID_TXN_STATE, from v4 on TRANSACTION_ABORTABLE. v5
  (transaction.version 2, KIP-890) adds it to the transaction implicitly.
"""

from kledger.gateway.api_errors import without_fencing
from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.coordinator.groups.offset_commits import commit_error, committed_offset
from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kledger.offsets import CommittedOffset, TopicPartition
from kledger.security.acl_state import Operation, ResourceType

KEY = 28
MIN_VERSION = 0
MAX_VERSION = 5

ABORTABLE_SINCE = 4
IMPLICIT_SINCE = 5


async def handle(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Check each partition, store those that pass, answer all."""
    services = context.services
    metadata_max = services.groups.config.offset_metadata_max_bytes
    now_ms = services.clock.now_ms()
    offsets: dict[TopicPartition, CommittedOffset] = {}
    accepted: list[TxnOffsetCommitResponsePartition] = []
    answers = []
    request_refusal = context.refusal(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
    ) or context.refusal(Operation.READ, ResourceType.GROUP, request.group_id)
    for asked in request.topics:
        topic = services.registry.get(asked.name)
        refused = request_refusal or context.refusal(Operation.READ, ResourceType.TOPIC, asked.name)
        partitions = []
        for partition in asked.partitions:
            error = refused or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic is not None and not refused:
                error = commit_error(topic, partition, metadata_max)
            answer = TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error
            )
            partitions.append(answer)
            if topic is not None and error is ErrorCode.NONE:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                offsets[topic_partition] = committed_offset(topic, partition, now_ms=now_ms)
                accepted.append(answer)
        answers.append(TxnOffsetCommitResponseTopic(name=asked.name, partitions=partitions))
    if offsets:
        error = await _store(context, request, offsets)
        for answer in accepted:
            answer.error_code = error
    return TxnOffsetCommitResponse(topics=answers)


async def _store(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: dict[TopicPartition, CommittedOffset],
) -> ErrorCode:
    transactions = context.services.transactions
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if error := context.services.groups.error(request.group_id):
        return error
    if transactions.shards.error(request.transactional_id):
        return await _store_remote(context, request, offsets)
    if context.version >= IMPLICIT_SINCE:
        error = await transactions.add(
            request.transactional_id, producer, groups=[request.group_id], is_v2=True
        )
        if error is not ErrorCode.NONE:
            return _error_code(error, context.version)
    error = await transactions.commit_offsets(
        request.transactional_id,
        producer,
        group_id=request.group_id,
        sender=_sender(request),
        offsets=offsets,
    )
    return _error_code(error, context.version)


async def _store_remote(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: dict[TopicPartition, CommittedOffset],
) -> ErrorCode:
    """Store offsets of a transaction that another broker coordinates."""
    remote, offsets_of = context.services.remote_transactions, context.services.groups.offsets
    if remote is None or not remote.includes(request.transactional_id):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    shard = offsets_of.partition_of(request.group_id)

    async def verify() -> ErrorCode:
        errors = await remote.verify(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            [shard],
            is_added=context.version >= IMPLICIT_SINCE,
        )
        return _error_of_coordinator(errors[shard], context.version)

    work = offsets_of.verify_and_add_pending(
        request.group_id, _sender(request), request.producer_id, offsets, verify
    )
    name = f"offsets of {request.transactional_id}"
    return _error_code(await context.services.supervisor.finish(work, name), context.version)


def _error_of_coordinator(error: ErrorCode, version: int) -> ErrorCode:
    """Return what an error of the transaction's coordinator is to a client of the group's."""
    if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if version < IMPLICIT_SINCE and error is ErrorCode.CONCURRENT_TRANSACTIONS:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # these clients do not know it here
    if version < ABORTABLE_SINCE and error is ErrorCode.TRANSACTION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _sender(request: TxnOffsetCommitRequest) -> RequestingMember:
    return RequestingMember(request.member_id, request.generation_id, request.group_instance_id)


def _error_code(error: ErrorCode, version: int) -> ErrorCode:
    """Return the code that this API has for a fenced producer or, since v4, a group not added."""
    if error is ErrorCode.INVALID_TXN_STATE and version >= ABORTABLE_SINCE:
        return ErrorCode.TRANSACTION_ABORTABLE
    return without_fencing(error)
