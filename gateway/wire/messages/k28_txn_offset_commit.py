"""TxnOffsetCommit, key 28: store offsets that are committed with a transaction."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct, field


class TxnOffsetCommitRequestPartition(Struct):
    """One offset to store, with metadata that only clients read."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field(versions="2+", default=-1)
    committed_metadata: str | None = ""


class TxnOffsetCommitRequestTopic(Struct):
    """Offsets of one topic."""

    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequest(ApiMessage, key=28, versions="0-5", flexible="3+"):
    """The next offsets that a group will consume once the transaction is committed."""

    transactional_id: str = ""
    group_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Int32 = field(versions="3+", default=-1)
    member_id: str = field(versions="3+", default="")
    group_instance_id: str | None = field(versions="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(Struct):
    """Outcome for one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    """Outcomes for one topic."""

    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponse(ApiMessage, key=28, versions="0-5", flexible="3+"):
    """Outcome for each partition."""

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []


REQUEST = TxnOffsetCommitRequest
RESPONSE = TxnOffsetCommitResponse
