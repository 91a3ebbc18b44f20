"""OffsetForLeaderEpoch, key 23: end offset of a leader epoch."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct, field


class OffsetForLeaderPartition(Struct):
    """The epoch whose end is wanted, and the one the client believes in."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Struct):
    """Partitions of one topic."""

    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(ApiMessage, key=23, versions="2-4", flexible="4+"):
    """Leader epochs whose end is wanted."""

    replica_id: Int32 = field(versions="3+", default=-2)
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(Struct):
    """Where the epoch ends; -1 and -1 when it is not known."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    """Ends of one topic."""

    topic: str = ""
    partitions: list[EpochEndOffset] = []


class OffsetForLeaderEpochResponse(ApiMessage, key=23, versions="2-4", flexible="4+"):
    """Where each epoch ends."""

    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []


REQUEST = OffsetForLeaderEpochRequest
RESPONSE = OffsetForLeaderEpochResponse
