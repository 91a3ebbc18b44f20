"""Metadata, key 3: brokers, topics, partitions and their leaders."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct, field


class MetadataRequestTopic(Struct):
    """A requested topic, by name, or from version 10 on by id."""

    topic_id: UUID = field(versions="10+", default=ZERO_UUID)
    name: str | None = field(nullable="10+", default="")


class MetadataRequest(ApiMessage, key=3, versions="0-13", flexible="9+"):
    """The requested topics; null means all."""

    topics: list[MetadataRequestTopic] | None = field(nullable="1+", default=[])
    allow_auto_topic_creation: bool = field(versions="4+", default=True)
    include_cluster_authorized_operations: bool = field(versions="8-10", default=False)
    include_topic_authorized_operations: bool = field(versions="8+", default=False)


class MetadataResponseBroker(Struct):
    """A broker and its address."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = field(versions="1+", default=None)


class MetadataResponsePartition(Struct):
    """One partition, its leader and its replicas."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = field(versions="7+", default=-1)
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: list[Int32] = field(versions="5+", default=[])


class MetadataResponseTopic(Struct):
    """One topic; the operations are a bit field, INT_MIN if not requested."""

    error_code: Int16 = 0
    name: str | None = field(nullable="12+", default="")
    topic_id: UUID = field(versions="10+", default=ZERO_UUID)
    is_internal: bool = field(versions="1+", default=False)
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Int32 = field(versions="8+", default=-2147483648)


class MetadataResponse(ApiMessage, key=3, versions="0-13", flexible="9+"):
    """The brokers of the cluster, and the requested topics."""

    throttle_time_ms: Int32 = field(versions="3+", default=0)
    brokers: list[MetadataResponseBroker] = []
    cluster_id: str | None = field(versions="2+", default=None)
    controller_id: Int32 = field(versions="1+", default=-1)
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Int32 = field(versions="8-10", default=-2147483648)
    error_code: Int16 = field(versions="13+", default=0)


REQUEST = MetadataRequest
RESPONSE = MetadataResponse
