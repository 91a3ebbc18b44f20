"""Topics as a Metadata response describes them, and topics that do not exist.

Rule: one broker leads and replicates a partition. If a request has both id and name, the id
decides.
Must not know: versions, except for the null name; how parts of a response are cached.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kledger.gateway.api_errors import ApiError, code_and_message_of
from kledger.gateway.assignments import leaders_of
from kledger.gateway.metadata.shown_leaders import NO_LEADER
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k03_metadata import (
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.topics import InvalidTopicName, Topic, TopicsError, UnknownTopic
from kledger.topics.topic_names import check_name, resolve_name

NULL_NAME_SINCE = 12


def without_duplicates(asked: Sequence[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Return the requested topics without repetitions, as Kafka does."""
    return list({(one.name, one.topic_id): one for one in asked}.values())


def missing_topic_error(name: str | None) -> TopicsError:
    """Return the error of a topic that does not exist: its name is invalid, or it is unknown."""
    try:
        check_name(resolve_name(name or ""))
    except InvalidTopicName as error:
        return error
    return UnknownTopic(
        f"This server does not host this topic-partition: the topic {name!r} does not exist."
    )


def describe_topic(
    topic: Topic,
    name: str,
    node_id: int,
    authorized_operations: int,
    shown_leaders: Mapping[int, int] = MappingProxyType({}),
) -> MetadataResponseTopic:
    """Describe a topic under the name in the request.

    Args:
        topic: what is described.
        name: in the request.
        node_id: of this broker, which leads everything if it is alone.
        authorized_operations: the bit field, or `OPERATIONS_NOT_REQUESTED`.
        shown_leaders: see `metadata.shown_leaders`.
    """
    partitions = [
        _describe_partition(index, leader, topic.leader_epoch(index), shown_leaders)
        for index, leader in enumerate(leaders_of(topic, node_id))
    ]
    return MetadataResponseTopic(
        name=name,
        topic_id=topic.id,
        partitions=partitions,
        topic_authorized_operations=authorized_operations,
    )


def _describe_partition(
    index: int, leader: int, leader_epoch: int, shown_leaders: Mapping[int, int]
) -> MetadataResponsePartition:
    shown = shown_leaders.get(leader, leader)
    described = MetadataResponsePartition(
        partition_index=index, leader_id=shown, leader_epoch=leader_epoch
    )
    if shown == NO_LEADER:
        described.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        described.offline_replicas = [leader]
        shown = leader
    described.replica_nodes = described.isr_nodes = [shown]
    return described


def describe_missing_topic(
    asked: MetadataRequestTopic,
    error: ApiError | TopicsError,
    version: int,
    authorized_operations: int,
) -> MetadataResponseTopic:
    """Describe a topic that does not exist, or that the client may not see.

    Three cases: requested by id, then it has no name; requested by name, then it has no id, and the
    operations on it are shown unless it is hidden.

    Args:
        asked: names it.
        error: why it is not described; an ApiError if it is hidden.
        version: of Metadata.
        authorized_operations: the bit field, or `OPERATIONS_NOT_REQUESTED`.
    """
    code, _ = code_and_message_of(error)
    if asked.topic_id != ZERO_UUID:
        name = None if version >= NULL_NAME_SINCE else ""
        if not isinstance(error, ApiError):
            code = ErrorCode.UNKNOWN_TOPIC_ID
        return MetadataResponseTopic(error_code=code, name=name, topic_id=asked.topic_id)
    answer = MetadataResponseTopic(error_code=code, name=asked.name or "")
    if not isinstance(error, ApiError):
        answer.topic_authorized_operations = authorized_operations
    return answer
