"""AlterReplicaLogDirs, key 34, versions 1-2.

Behaviour:
- There is one log folder, the one that DescribeLogDirs shows. A partition that is to be there is
  there already; any other folder is LOG_DIR_NOT_FOUND for each of its partitions.
- Unknown topics and partitions are UNKNOWN_TOPIC_OR_PARTITION.
- Each topic gets one entry per folder that names it.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

KEY = 34
MIN_VERSION = 1
MAX_VERSION = 2


def handle(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Say of each partition whether it is in that folder."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index,
                        error_code=_outcome(context, folder.path, topic.name, index),
                    )
                    for index in topic.partitions
                ],
            )
            for folder in request.dirs
            for topic in folder.topics
        ]
    )


def _outcome(context: RequestContext, path: str, name: str, index: int) -> ErrorCode:
    if path != context.services.log_dir:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = context.services.registry.get(name)
    if topic is None or not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
