"""Fetch, key 1: read record batches from partitions."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import (
    ApiMessage,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    Struct,
    field,
)


class ReplicaState(Struct):
    """The follower that sends the request; -1 is a consumer."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    """The offset to read from in one partition, and the most bytes to return."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = field(versions="9+", default=-1)
    fetch_offset: Int64 = 0
    last_fetched_epoch: Int32 = field(versions="12+", default=-1)
    log_start_offset: Int64 = field(versions="5+", default=-1)
    partition_max_bytes: Int32 = 0
    replica_directory_id: UUID = field(versions="17+", tag=0, default=ZERO_UUID)
    high_watermark: Int64 = field(versions="18+", tag=1, default=9223372036854775807)


class FetchTopic(Struct):
    """Partitions of one topic, by name up to version 12, by id from 13 on."""

    topic: str = field(versions="0-12", default="")
    topic_id: UUID = field(versions="13+", default=ZERO_UUID)
    partitions: list[FetchPartition] = []


class ForgottenTopic(Struct):
    """Partitions to remove from the fetch session (KIP-227)."""

    topic: str = field(versions="7-12", default="")
    topic_id: UUID = field(versions="13+", default=ZERO_UUID)
    partitions: list[Int32] = []


class FetchRequest(ApiMessage, key=1, versions="4-18", flexible="12+"):
    """The partitions and offsets to read, with limits of bytes and time."""

    cluster_id: str | None = field(versions="12+", tag=0, default=None)
    replica_id: Int32 = field(versions="0-14", default=-1)
    replica_state: ReplicaState = field(default_factory=ReplicaState, versions="15+", tag=1)
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    isolation_level: Int8 = 0
    session_id: Int32 = field(versions="7+", default=0)
    session_epoch: Int32 = field(versions="7+", default=-1)
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = field(versions="7+", default=[])
    rack_id: str = field(versions="11+", default="")


class EpochEndOffset(Struct):
    """The offset at which the follower's log diverges (KIP-595)."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    """The partition's current leader and its epoch (KIP-951); -1 if unknown."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    """The snapshot that a replica loads instead of the log (KIP-630)."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    """An aborted transaction whose records are in the response."""

    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Struct):
    """Batches and offsets of one partition; records are empty, never null."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = field(versions="5+", default=-1)
    diverging_epoch: EpochEndOffset = field(default_factory=EpochEndOffset, versions="12+", tag=0)
    current_leader: LeaderIdAndEpoch = field(
        default_factory=LeaderIdAndEpoch, versions="12+", tag=1
    )
    snapshot_id: SnapshotId = field(default_factory=SnapshotId, versions="12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = []
    preferred_read_replica: Int32 = field(versions="11+", default=-1)
    records: Records | None = b""


class FetchableTopicResponse(Struct):
    """Partitions of one topic."""

    topic: str = field(versions="0-12", default="")
    topic_id: UUID = field(versions="13+", default=ZERO_UUID)
    partitions: list[PartitionData] = []


class NodeEndpoint(Struct):
    """The address of a leader that is named above (KIP-951)."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None


class FetchResponse(ApiMessage, key=1, versions="4-18", flexible="12+"):
    """Record batches and the state of each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(versions="7+", default=0)
    session_id: Int32 = field(versions="7+", default=0)
    responses: list[FetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = field(versions="16+", tag=0, default=[])


REQUEST = FetchRequest
RESPONSE = FetchResponse
