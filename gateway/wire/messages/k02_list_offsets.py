"""ListOffsets, key 2: offsets by timestamp."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Int64, Struct, field


class ListOffsetsPartition(Struct):
    """A timestamp in milliseconds, or -1 latest, -2 earliest and so on."""

    partition_index: Int32 = 0
    current_leader_epoch: Int32 = field(versions="4+", default=-1)
    timestamp: Int64 = 0


class ListOffsetsTopic(Struct):
    """Partitions of one topic."""

    name: str = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(ApiMessage, key=2, versions="1-11", flexible="6+"):
    """Timestamps to look up; negative ones have special meanings."""

    replica_id: Int32 = 0
    isolation_level: Int8 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Int32 = field(versions="10+", default=0)


class ListOffsetsPartitionResponse(Struct):
    """The offset and timestamp found; -1 and -1 if none matches."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = field(versions="4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """Offsets of one topic."""

    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(ApiMessage, key=2, versions="1-11", flexible="6+"):
    """The offset found for each partition."""

    throttle_time_ms: Int32 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopicResponse] = []


REQUEST = ListOffsetsRequest
RESPONSE = ListOffsetsResponse
