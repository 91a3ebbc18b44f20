"""What one node answers about other nodes: keys 34, 43-46 and 55.

- 34 AlterReplicaLogDirs: there is one log folder, the one that DescribeLogDirs shows, and every
  partition is in it. Another folder is LOG_DIR_NOT_FOUND for each partition. Each topic gets one
  entry per folder that names it.
- 43 ElectLeaders: this node leads every partition, ELECTION_NOT_NEEDED, which Kafka's tool counts
  as done. For all partitions (null) the answer lists only new leaders: each topic without any. An
  unknown type of election is INVALID_REQUEST for each partition, and for the whole if there is one.
- 45 AlterPartitionReassignments: every partition is on this node, and a move to it is done at once.
  Other replicas are INVALID_REPLICA_ASSIGNMENT. Null cancels a move: NO_REASSIGNMENT_IN_PROGRESS.
- 46 ListPartitionReassignments: none is under way. Unknown topics are no error, as in Apache Kafka.
- 55 DescribeQuorum (KIP-595): this node leads the metadata partition and is its only voter. The end
  is the number of changes to topics since the start, as there is no such log. Every other
  partition, and all of a request for more than that one, are UNKNOWN_TOPIC_OR_PARTITION.
Unknown topics and partitions are UNKNOWN_TOPIC_OR_PARTITION in 34, 43 and 45.

Rule: one row of ANSWERS per key; `gateway.served_apis` has the versions. An answer imports its own
schema, so that the first request of one key does not wait for those of five. Nothing is stored.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from kledger.gateway.assignments import leaders_of
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kledger.gateway.wire.messages import k34_alter_replica_log_dirs as k34
    from kledger.gateway.wire.messages import k43_elect_leaders as k43
    from kledger.gateway.wire.messages import k45_alter_partition_reassignments as k45
    from kledger.gateway.wire.messages import k55_describe_quorum as k55

ELECTION_TYPES = (0, 1)
"""Preferred and unclean (KIP-460)."""
METADATA_PARTITION = "__cluster_metadata", 0


def alter_replica_log_dirs(
    context: RequestContext, request: "k34.AlterReplicaLogDirsRequest"
) -> "k34.AlterReplicaLogDirsResponse":
    """Answer for each partition whether it is in the folder that the client names."""
    from kledger.gateway.wire.messages import k34_alter_replica_log_dirs as k34

    def outcome(path: str, name: str, index: int) -> ErrorCode:
        if path != context.services.log_dir:
            return ErrorCode.LOG_DIR_NOT_FOUND
        topic = context.services.registry.get(name)
        if topic is None or not 0 <= index < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    return k34.AlterReplicaLogDirsResponse(
        results=[
            k34.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    k34.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=outcome(folder.path, topic.name, index)
                    )
                    for index in topic.partitions
                ],
            )
            for folder in request.dirs
            for topic in folder.topics
        ]
    )


def elect_leaders(
    context: RequestContext, request: "k43.ElectLeadersRequest"
) -> "k43.ElectLeadersResponse":
    """Answer for each partition that it has the right leader."""
    from kledger.gateway.wire.messages import k43_elect_leaders as k43

    def outcome(name: str, index: int) -> k43.PartitionResult:
        code, message = _election(context, request.election_type, name, index)
        return k43.PartitionResult(partition_id=index, error_code=code, error_message=message)

    if request.topic_partitions is None:
        topics = context.services.registry.all()
        return k43.ElectLeadersResponse(
            replica_election_results=[k43.ReplicaElectionResult(topic=one.name) for one in topics]
        )
    is_refused = request.election_type not in ELECTION_TYPES and any(
        asked.partitions for asked in request.topic_partitions
    )
    return k43.ElectLeadersResponse(
        error_code=ErrorCode.INVALID_REQUEST if is_refused else ErrorCode.NONE,
        replica_election_results=[
            k43.ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[outcome(asked.topic, index) for index in asked.partitions],
            )
            for asked in request.topic_partitions
        ],
    )


def _election(
    context: RequestContext, election_type: int, name: str, index: int
) -> tuple[ErrorCode, str]:
    topic = context.services.registry.get(name)
    if election_type not in ELECTION_TYPES:
        return (
            ErrorCode.INVALID_REQUEST,
            f"Unknown election type {election_type}, expected 0 or 1",
        )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        return unknown, f"No such topic as {name}: it does not exist"
    if not 0 <= index < topic.partition_count:
        return unknown, f"No such partition as {name}-{index}: it does not exist"
    node_id = leaders_of(topic, context.services.config.node_id)[index]
    return (
        ErrorCode.ELECTION_NOT_NEEDED,
        f"Leader election not needed for topic partition {name}-{index}: node {node_id} leads it.",
    )


def alter_partition_reassignments(
    context: RequestContext, request: "k45.AlterPartitionReassignmentsRequest"
) -> "k45.AlterPartitionReassignmentsResponse":
    """Answer for each partition whether its replicas are this node alone."""
    from kledger.gateway.wire.messages import k45_alter_partition_reassignments as k45

    def outcome(name: str, asked: k45.ReassignablePartition) -> k45.ReassignablePartitionResponse:
        code, message = _reassignment(context, name, asked.partition_index, asked.replicas)
        return k45.ReassignablePartitionResponse(
            partition_index=asked.partition_index, error_code=code, error_message=message
        )

    return k45.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            k45.ReassignableTopicResponse(
                name=topic.name,
                partitions=[outcome(topic.name, each) for each in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _reassignment(
    context: RequestContext, name: str, index: int, replicas: list[int] | None
) -> tuple[ErrorCode, str | None]:
    topic = context.services.registry.get(name)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        return unknown, f"Unable to find a topic named {name}."
    if not 0 <= index < topic.partition_count:
        return unknown, f"Unable to find partition {name}:{index}."
    if replicas is None:
        # Kafka's tool takes this code without a message for "nothing to cancel".
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    leader = leaders_of(topic, context.services.config.node_id)[index]
    if replicas != [leader]:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, (
            f"The manual partition assignment includes {replicas}: expected broker {leader} alone, "
            "which has the partition. Partitions do not move between brokers."
        )
    return ErrorCode.NONE, None


def describe_quorum(
    context: RequestContext, request: "k55.DescribeQuorumRequest"
) -> "k55.DescribeQuorumResponse":
    """Describe the quorum of one.

    Times (v1, KIP-836) are now, as for each leader; directory ids (v2, KIP-853) are zero.
    """
    from kledger.gateway.wire.messages import k55_describe_quorum as k55

    services = context.services
    leader_id = services.brokers.controller_id
    asked = [
        (topic.topic_name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    is_found = asked == [METADATA_PARTITION]

    def described(name: str, index: int) -> k55.DescribedPartition:
        if not is_found:
            topic, partition = METADATA_PARTITION
            return k55.DescribedPartition(
                partition_index=index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message="This server does not host this topic-partition: "
                f"{name}-{index}, expected {topic}-{partition} alone",
            )
        now_ms, end = services.clock.now_ms(), services.registry.epoch
        voter = k55.ReplicaState(
            replica_id=leader_id,
            log_end_offset=end,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        return k55.DescribedPartition(
            partition_index=index,
            error_message=None,
            leader_id=leader_id,
            leader_epoch=services.registry.leader_epoch,
            high_watermark=end,
            current_voters=[voter],
        )

    shown = context.advertised
    nodes = [
        k55.Node(node_id=node_id, listeners=[k55.Listener(name=shown.name, host=host, port=port)])
        for node_id, host, port in services.brokers.all(shown)
        if is_found and node_id == leader_id
    ]
    return k55.DescribeQuorumResponse(
        error_message=None,
        topics=[
            k55.DescribedTopic(
                topic_name=topic.topic_name,
                partitions=[
                    described(topic.topic_name, each.partition_index) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        nodes=nodes,
    )


class SingleNodeAnswer(NamedTuple):
    """One row: what serves a key, in the form of a handler module."""

    handle: Callable[[RequestContext, Any], object]


def _always(schema: str, **fields: object) -> SingleNodeAnswer:
    """Make the row of an answer that does not depend on the request."""

    def handle(_context: RequestContext, _request: object) -> object:
        return import_module(f"kledger.gateway.wire.messages.{schema}").RESPONSE(**fields)

    return SingleNodeAnswer(handle)


ANSWERS: dict[int, SingleNodeAnswer] = {
    34: SingleNodeAnswer(alter_replica_log_dirs),
    43: SingleNodeAnswer(elect_leaders),
    45: SingleNodeAnswer(alter_partition_reassignments),
    46: _always("k46_list_partition_reassignments", error_message=None),
    55: SingleNodeAnswer(describe_quorum),
}
