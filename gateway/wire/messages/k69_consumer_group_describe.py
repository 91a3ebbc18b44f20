"""ConsumerGroupDescribe, key 69: describe groups of the consumer protocol."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct, field


class ConsumerGroupDescribeRequest(ApiMessage, key=69, versions="0-1", flexible="0+"):
    """Groups to describe."""

    group_ids: list[str] = []
    include_authorized_operations: bool = False


class TopicPartitions(Struct):
    """Partitions of one topic, by id and name."""

    topic_id: UUID = ZERO_UUID
    topic_name: str = ""
    partitions: list[Int32] = []


class Assignment(Struct):
    """The partitions of one member."""

    topic_partitions: list[TopicPartitions] = []


class Member(Struct):
    """One member: its subscription, current and target assignment."""

    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    member_type: Int8 = field(versions="1+", default=-1)


class DescribedGroup(Struct):
    """One group; an unknown group, or one of another protocol, is an error."""

    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: list[Member] = []
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(ApiMessage, key=69, versions="0-1", flexible="0+"):
    """Epochs, assignor and members of each group."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []


REQUEST = ConsumerGroupDescribeRequest
RESPONSE = ConsumerGroupDescribeResponse
