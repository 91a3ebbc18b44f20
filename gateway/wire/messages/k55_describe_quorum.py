"""DescribeQuorum, key 55: the replicas of the metadata log and their end offsets."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct, Uint16, field


class PartitionData(Struct):
    """One partition of the metadata topic."""

    partition_index: Int32 = 0


class TopicData(Struct):
    """Partitions of one topic."""

    topic_name: str = ""
    partitions: list[PartitionData] = []


class DescribeQuorumRequest(ApiMessage, key=55, versions="0-2", flexible="0+"):
    """Partitions to describe."""

    topics: list[TopicData] = []


class ReplicaState(Struct):
    """The progress of one replica."""

    replica_id: Int32 = 0
    replica_directory_id: UUID = field(versions="2+", default=ZERO_UUID)
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Int64 = field(versions="1+", default=-1)
    last_caught_up_timestamp: Int64 = field(versions="1+", default=-1)


class DescribedPartition(Struct, kafka_name="PartitionData"):
    """The quorum of one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = field(versions="2+", default="")
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class DescribedTopic(Struct, kafka_name="TopicData"):
    """The quorums of one topic."""

    topic_name: str = ""
    partitions: list[DescribedPartition] = []


class Listener(Struct):
    """One address of a node."""

    name: str = field(versions="2+", default="")
    host: str = field(versions="2+", default="")
    port: Uint16 = field(versions="2+", default=0)


class Node(Struct):
    """A node and its listeners."""

    node_id: Int32 = field(versions="2+", default=0)
    listeners: list[Listener] = field(versions="2+", default=[])


class DescribeQuorumResponse(ApiMessage, key=55, versions="0-2", flexible="0+"):
    """The quorum of each partition."""

    error_code: Int16 = 0
    error_message: str | None = field(versions="2+", default="")
    topics: list[DescribedTopic] = []
    nodes: list[Node] = field(versions="2+", default=[])


REQUEST = DescribeQuorumRequest
RESPONSE = DescribeQuorumResponse
