"""ConsumerGroupHeartbeat, key 68: join, stay in and leave a consumer group."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct, field


class TopicPartitions(Struct):
    """Partitions of one topic, by id."""

    topic_id: UUID = ZERO_UUID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatRequest(ApiMessage, key=68, versions="0-1", flexible="0+"):
    """A heartbeat of one member; null fields are unchanged since its last one."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = field(versions="1+", default=None)
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None


class Assignment(Struct):
    """All partitions that a member may own from now on."""

    topic_partitions: list[TopicPartitions] = []


class ConsumerGroupHeartbeatResponse(ApiMessage, key=68, versions="0-1", flexible="0+"):
    """The member's epoch and assignment; null if the assignment is unchanged."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None


REQUEST = ConsumerGroupHeartbeatRequest
RESPONSE = ConsumerGroupHeartbeatResponse
