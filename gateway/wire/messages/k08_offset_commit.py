"""OffsetCommit, key 8: store the offsets of a group."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct, field


class OffsetCommitRequestPartition(Struct):
    """One offset to store, with metadata that only clients read."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field(versions="6+", default=-1)
    committed_metadata: str | None = ""


class OffsetCommitRequestTopic(Struct):
    """Offsets of one topic."""

    name: str = field(versions="0-9", default="")
    topic_id: UUID = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(ApiMessage, key=8, versions="2-10", flexible="8+"):
    """The next offsets that a group will consume."""

    group_id: str = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: str = ""
    group_instance_id: str | None = field(versions="7+", default=None)
    retention_time_ms: Int64 = field(versions="2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Struct):
    """Outcome for one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct):
    """Outcomes for one topic."""

    name: str = field(versions="0-9", default="")
    topic_id: UUID = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(ApiMessage, key=8, versions="2-10", flexible="8+"):
    """Outcome for each partition."""

    throttle_time_ms: Int32 = field(versions="3+", default=0)
    topics: list[OffsetCommitResponseTopic] = []


REQUEST = OffsetCommitRequest
RESPONSE = OffsetCommitResponse
