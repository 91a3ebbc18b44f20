"""OffsetDelete, key 47: delete stored offsets of a group."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct


class OffsetDeleteRequestPartition(Struct):
    """A partition whose offset to delete."""

    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Struct):
    """Partitions of one topic."""

    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequest(ApiMessage, key=47, versions="0", flexible="none"):
    """Partitions whose stored offsets to delete."""

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponsePartition(Struct):
    """Outcome for one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Struct):
    """Outcomes for one topic."""

    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponse(ApiMessage, key=47, versions="0", flexible="none"):
    """Outcome for each partition."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []


REQUEST = OffsetDeleteRequest
RESPONSE = OffsetDeleteResponse
