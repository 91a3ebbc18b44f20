"""CreatePartitions, key 37, versions 0-3.

Behaviour:
- Raises the number of partitions of a topic; the same or fewer is INVALID_PARTITIONS.
- The client must be allowed to alter the topic.
- Every topic gets one entry; a repeated topic is refused.
- Assignments, when given, must name this node alone for each new partition.
- New partitions count against the client's `controller_mutation_rate`, also when they are only
  checked; version 3 refuses requests over the quota (KIP-599).
"""

from kledger.gateway.api_errors import (
    ApiError,
    check_not_repeated,
    code_and_message_of,
    first_of_each,
)
from kledger.gateway.assignments import are_assigned, first_brokers, some_of
from kledger.gateway.quotas.mutation_quota import MutationQuota
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kledger.security.acl_state import Operation, ResourceType
from kledger.topics import TopicsError, UnknownTopic

KEY = 37
MIN_VERSION = 0
MAX_VERSION = 3

STRICT_QUOTA_SINCE = 3


async def handle(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Raise the partition counts, or only check them."""
    results = []
    quota = MutationQuota(
        context.services.quotas,
        context.peer.principal,
        context.client_id,
        is_strict=context.version >= STRICT_QUOTA_SINCE,
    )
    for asked, count in first_of_each(request.topics, lambda topic: topic.name):
        result = CreatePartitionsTopicResult(name=asked.name)
        try:
            check_not_repeated(count, "Duplicate topic name")
            await _create(context, asked, quota, validate_only=request.validate_only)
        except (ApiError, TopicsError) as error:
            result.error_code, result.error_message = code_and_message_of(error)
        results.append(result)
    context.wait_ms = quota.wait_ms
    return CreatePartitionsResponse(results=results)


async def _create(
    context: RequestContext,
    asked: CreatePartitionsTopic,
    quota: MutationQuota,
    *,
    validate_only: bool,
) -> None:
    context.check(Operation.ALTER, ResourceType.TOPIC, asked.name)
    registry = context.services.registry
    topic = registry.get(asked.name)
    if topic is None:
        raise UnknownTopic(f"The topic {asked.name!r} does not exist.")
    registry.check_partitions(topic, asked.count)
    added = asked.count - topic.partition_count
    broker_ids = context.broker_ids
    if asked.assignments is not None and (
        len(asked.assignments) != added or not are_assigned(asked.assignments, broker_ids)
    ):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s). The manual partition assignment: "
            f"expected as many, each on {some_of(broker_ids)}.",
        )
    quota.charge(added)
    if not validate_only:
        assigned = None if asked.assignments is None else first_brokers(asked.assignments)
        await registry.create_partitions(asked.name, asked.count, assigned)
        context.audit("created partitions", topic=topic.name, partitions=asked.count)
