"""Produce, key 0: append record batches to partitions."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Records, Struct, field


class PartitionProduceData(Struct):
    """One partition's batch, opaque here."""

    index: Int32 = 0
    records: Records | None = b""


class TopicProduceData(Struct):
    """Batches for one topic, by name up to version 12, by id from 13 on."""

    name: str = field(versions="0-12", default="")
    topic_id: UUID = field(versions="13+", default=ZERO_UUID)
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(ApiMessage, key=0, versions="3-13", flexible="9+"):
    """Record batches to append, by topic and partition."""

    transactional_id: str | None = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Struct):
    """One refused record, by its index in the batch."""

    batch_index: Int32 = 0
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(Struct):
    """The partition's current leader and its epoch (KIP-951); -1 if unknown."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct):
    """Outcome for one partition; the append time is -1 with CreateTime."""

    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = field(versions="5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(versions="8+", default=[])
    error_message: str | None = field(versions="8+", default=None)
    current_leader: LeaderIdAndEpoch = field(
        default_factory=LeaderIdAndEpoch, versions="10+", tag=0
    )


class TopicProduceResponse(Struct):
    """Outcomes for one topic."""

    name: str = field(versions="0-12", default="")
    topic_id: UUID = field(versions="13+", default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse] = []


class NodeEndpoint(Struct):
    """The address of a leader that is named above (KIP-951)."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None


class ProduceResponse(ApiMessage, key=0, versions="3-13", flexible="9+"):
    """The base offset or the error of each batch."""

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Int32 = 0
    node_endpoints: list[NodeEndpoint] = field(versions="10+", tag=0, default=[])


REQUEST = ProduceRequest
RESPONSE = ProduceResponse
