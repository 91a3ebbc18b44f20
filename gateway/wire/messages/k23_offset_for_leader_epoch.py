"""OffsetForLeaderEpoch, key 23: end offset of a leader epoch."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct, field


class OffsetForLeaderPartition(Struct):
    """The epoch to look up, and the client's current leader epoch."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Struct):
    """Partitions of one topic."""

    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(ApiMessage, key=23, versions="2-4", flexible="4+"):
    """The leader epochs to look up."""

    replica_id: Int32 = field(versions="3+", default=-2)
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(Struct):
    """The end offset of the epoch; -1 and -1 if it is unknown."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    """End offsets of one topic."""

    topic: str = ""
    partitions: list[EpochEndOffset] = []


class OffsetForLeaderEpochResponse(ApiMessage, key=23, versions="2-4", flexible="4+"):
    """The end offset of each epoch."""

    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []


REQUEST = OffsetForLeaderEpochRequest
RESPONSE = OffsetForLeaderEpochResponse
