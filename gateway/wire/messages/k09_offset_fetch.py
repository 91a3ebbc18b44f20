"""OffsetFetch, key 9: stored offsets of groups."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct, field


class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic, up to version 7."""

    name: str = ""
    partition_indexes: list[Int32] = []


class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic of a group, from version 8 on."""

    name: str = field(versions="8-9", default="")
    topic_id: UUID = field(versions="10+", default=ZERO_UUID)
    partition_indexes: list[Int32] = []


class OffsetFetchRequestGroup(Struct):
    """One group; null topics means all that have an offset."""

    group_id: str = ""
    member_id: str | None = field(versions="9+", default=None)
    member_epoch: Int32 = field(versions="9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = []


class OffsetFetchRequest(ApiMessage, key=9, versions="1-10", flexible="6+"):
    """The groups and partitions to look up."""

    group_id: str = field(versions="0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(versions="0-7", nullable="2-7", default=[])
    groups: list[OffsetFetchRequestGroup] = field(versions="8+", default=[])
    require_stable: bool = field(versions="7+", default=False)


class OffsetFetchResponsePartition(Struct):
    """One stored offset, up to version 7."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field(versions="5-7", default=-1)
    metadata: str | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Struct):
    """Offsets of one topic, up to version 7."""

    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartitions(Struct):
    """One stored offset of a group, from version 8 on."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: str | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Struct):
    """Offsets of one topic of a group, from version 8 on."""

    name: str = field(versions="8-9", default="")
    topic_id: UUID = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponseGroup(Struct):
    """Offsets of one group."""

    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


class OffsetFetchResponse(ApiMessage, key=9, versions="1-10", flexible="6+"):
    """The stored offsets; -1 if there is none."""

    throttle_time_ms: Int32 = field(versions="3+", default=0)
    topics: list[OffsetFetchResponseTopic] = field(versions="0-7", default=[])
    error_code: Int16 = field(versions="2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = field(versions="8+", default=[])


REQUEST = OffsetFetchRequest
RESPONSE = OffsetFetchResponse
