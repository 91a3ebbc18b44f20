"""CreateTopics, key 19: create topics."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct, field


class CreatableReplicaAssignment(Struct):
    """The brokers to place one partition on."""

    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Struct):
    """One setting of the new topic."""

    name: str = ""
    value: str | None = ""


class CreatableTopic(Struct):
    """One topic to create; -1 partitions or replicas means the broker's default."""

    name: str = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreateTopicsRequest(ApiMessage, key=19, versions="2-7", flexible="5+"):
    """Topics with their partitions and configuration."""

    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: bool = False


class CreatableTopicConfigs(Struct):
    """One setting of the created topic."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False


class CreatableTopicResult(Struct):
    """Outcome for one topic, with its id and configuration."""

    name: str = ""
    topic_id: UUID = field(versions="7+", default=ZERO_UUID)
    error_code: Int16 = 0
    error_message: str | None = ""
    topic_config_error_code: Int16 = field(versions="5+", tag=0, default=0)
    num_partitions: Int32 = field(versions="5+", default=-1)
    replication_factor: Int16 = field(versions="5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field(versions="5+", default=[])


class CreateTopicsResponse(ApiMessage, key=19, versions="2-7", flexible="5+"):
    """Outcome for each topic, with its settings."""

    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = []


REQUEST = CreateTopicsRequest
RESPONSE = CreateTopicsResponse
