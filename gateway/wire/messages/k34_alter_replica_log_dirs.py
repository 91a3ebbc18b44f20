"""AlterReplicaLogDirs, key 34: move replicas to another log folder."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct


class AlterReplicaLogDirTopic(Struct):
    """Partitions of one topic."""

    name: str = ""
    partitions: list[Int32] = []


class AlterReplicaLogDir(Struct):
    """A folder and the partitions to move to it."""

    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirsRequest(ApiMessage, key=34, versions="1-2", flexible="2+"):
    """The target folders of replicas of this node."""

    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDirPartitionResult(Struct):
    """Outcome for one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(Struct):
    """Outcomes for one topic."""

    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirsResponse(ApiMessage, key=34, versions="1-2", flexible="2+"):
    """Outcome for each partition."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []


REQUEST = AlterReplicaLogDirsRequest
RESPONSE = AlterReplicaLogDirsResponse
