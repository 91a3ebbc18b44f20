"""CreateTopics, key 19, versions 2-7.

Behaviour:
- Every name gets one entry; a repeated name is refused.
- A client that may create nothing in the cluster must be allowed to create each topic. One that may
  not describe the configuration of a topic gets an answer without it.
- Errors have Kafka's order: right, name, existence, configuration, replicas, partitions.
- -1 partitions or replicas mean the broker's default; on this one node any other number of replicas
  than 1 is INVALID_REPLICATION_FACTOR.
- Assignments, when given, number the partitions from 0 and name this node alone; then partitions
  and replicas must be -1.
- With ``validate_only`` nothing is created, and the answer is that of a creation.
- The answer is sent when the topic is durable; clients can use it at once.
- Partitions count against the client's `controller_mutation_rate`, also when they are only checked.

Version notes:
- v5 answers partitions, replicas and the configuration (KIP-525), v6 refuses what is over the quota
  (KIP-599), v7 has the topic's id (KIP-516).
"""

from collections.abc import Collection
from operator import attrgetter

from kledger.gateway.api_errors import (
    ApiError,
    check_not_repeated,
    code_and_message_of,
    first_of_each,
)
from kledger.gateway.assignments import are_assigned, first_brokers, some_of
from kledger.gateway.configs.config_entries import topic_entries
from kledger.gateway.quotas.mutation_quota import MutationQuota
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kledger.security.acl_state import Operation, ResourceType
from kledger.topics import (
    InvalidConfig,
    InvalidReplicationFactor,
    TopicsError,
    check_partition_count,
)
from kledger.topics.topic_names import namespace_of

KEY = 19
MIN_VERSION = 2
MAX_VERSION = 7

CONFIGS_SINCE = 5
STRICT_QUOTA_SINCE = 6
USE_DEFAULT = -1
CLUSTER_METADATA_TOPIC = "__cluster_metadata"


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create the topics one by one, or only check them."""
    results = []
    quota = MutationQuota(
        context.services.quotas,
        context.peer.principal,
        context.client_id,
        is_strict=context.version >= STRICT_QUOTA_SINCE,
    )
    may_create_all = context.authorize(Operation.CREATE, ResourceType.CLUSTER, is_audited=False)
    for asked, count in first_of_each(request.topics, lambda topic: topic.name):
        try:
            check_not_repeated(count, "Duplicate topic name")
            _refuse_reserved(asked.name)
            if not may_create_all:
                context.check(Operation.CREATE, ResourceType.TOPIC, asked.name)
            results.append(
                await _create(context, asked, quota, validate_only=request.validate_only)
            )
        except (ApiError, TopicsError) as error:
            code, message = code_and_message_of(error)
            results.append(
                CreatableTopicResult(name=asked.name, error_code=code, error_message=message)
            )
    context.wait_ms = quota.wait_ms
    return CreateTopicsResponse(topics=results)


async def _create(
    context: RequestContext, asked: CreatableTopic, quota: MutationQuota, *, validate_only: bool
) -> CreatableTopicResult:
    services, registry = context.services, context.services.registry
    registry.check_new_name(asked.name)
    values = {config.name: _value(config) for config in asked.configs}
    registry.check_creation(asked.name, configs=values)
    partitions = _partition_count(context, asked)
    result = CreatableTopicResult(
        name=asked.name, error_message=None, num_partitions=partitions, replication_factor=1
    )
    in_order = sorted(asked.assignments, key=attrgetter("partition_index"))
    assigned = first_brokers(in_order) if in_order else None
    checked = registry.check_creation(
        asked.name, partitions=partitions, configs=values, assigned=assigned
    )
    quota.charge(partitions)
    if validate_only:
        result.topic_id = checked.topic_id
    else:
        topic = await registry.create(
            asked.name, partitions=partitions, configs=values, assigned=assigned
        )
        result.topic_id = topic.id
        context.audit("created topic", topic=topic.name, partitions=partitions)
    may_see_configs = context.authorize(
        Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, checked.name, is_audited=False
    )
    if context.version >= CONFIGS_SINCE and not may_see_configs:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.num_partitions = result.replication_factor = -1
    elif context.version >= CONFIGS_SINCE:
        result.configs = [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                config_source=entry.config_source,
                is_sensitive=False,
            )
            for entry in topic_entries(
                values,
                registry.defaults,
                services.broker_settings,
                registry.namespaces.configs_of(namespace_of(checked.name)),
            )
        ]
    return result


def _refuse_reserved(name: str) -> None:
    if name == CLUSTER_METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is kept for internal use")


def _value(config: CreatableTopicConfig) -> str:
    if config.value is None:
        raise InvalidConfig(f"Null value not supported for topic configs: {config.name}")
    return config.value


def _partition_count(context: RequestContext, asked: CreatableTopic) -> int:
    """Return the number of partitions of the request; refuse invalid numbers and assignments."""
    config = context.services.config
    if asked.assignments:
        return _assigned_partitions(asked, context.broker_ids)
    replicas, registered = asked.replication_factor, len(context.broker_ids)
    if replicas == 0 or replicas < USE_DEFAULT:
        raise InvalidReplicationFactor(
            "Replication factor must be larger than 0, or -1 to use the default value, "
            f"got {replicas}"
        )
    is_default = asked.num_partitions == USE_DEFAULT
    count = config.num_partitions if is_default else asked.num_partitions
    check_partition_count(count)
    if replicas > registered:
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replicas} time(s): The target replication factor "
            f"of {replicas} cannot be reached because only {registered} broker(s) are registered."
        )
    return count


def _assigned_partitions(asked: CreatableTopic, broker_ids: Collection[int]) -> int:
    if asked.num_partitions != USE_DEFAULT or asked.replication_factor != USE_DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions and replicationFactor "
            f"were not set to -1: got {asked.num_partitions} and {asked.replication_factor}",
        )
    indexes = sorted(assignment.partition_index for assignment in asked.assignments)
    is_whole = indexes == list(range(len(indexes)))
    if not is_whole or not are_assigned(asked.assignments, broker_ids):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment: expected partitions 0 to {len(indexes) - 1}, each "
            f"on {some_of(broker_ids)}",
        )
    return len(indexes)
