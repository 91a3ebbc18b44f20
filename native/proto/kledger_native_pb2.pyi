from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Position(_message.Message):
    __slots__ = ("ledger_id", "entry_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ...) -> None: ...

class RecordPosition(_message.Message):
    __slots__ = ("position", "batch_index")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    position: Position
    batch_index: int
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ..., batch_index: _Optional[int] = ...) -> None: ...

class RecordLocation(_message.Message):
    __slots__ = ("record_position", "batch_size", "offset")
    RECORD_POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    record_position: RecordPosition
    batch_size: int
    offset: int
    def __init__(self, record_position: _Optional[_Union[RecordPosition, _Mapping]] = ..., batch_size: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("record_position", "time_ms", "edge")
    class Edge(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EDGE_UNSPECIFIED: _ClassVar[Target.Edge]
        EDGE_EARLIEST: _ClassVar[Target.Edge]
        EDGE_LATEST: _ClassVar[Target.Edge]
    EDGE_UNSPECIFIED: Target.Edge
    EDGE_EARLIEST: Target.Edge
    EDGE_LATEST: Target.Edge
    RECORD_POSITION_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    record_position: RecordPosition
    time_ms: int
    edge: Target.Edge
    def __init__(self, record_position: _Optional[_Union[RecordPosition, _Mapping]] = ..., time_ms: _Optional[int] = ..., edge: _Optional[_Union[Target.Edge, str]] = ...) -> None: ...

class RecordMask(_message.Message):
    __slots__ = ("position", "records")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    position: Position
    records: bytes
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ..., records: _Optional[bytes] = ...) -> None: ...

class Acknowledgement(_message.Message):
    __slots__ = ("position", "records", "batch_size")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    position: Position
    records: bytes
    batch_size: int
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ..., records: _Optional[bytes] = ..., batch_size: _Optional[int] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("position", "data", "records", "redelivery_count", "consumer_epoch")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    position: Position
    data: bytes
    records: bytes
    redelivery_count: int
    consumer_epoch: int
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ..., data: _Optional[bytes] = ..., records: _Optional[bytes] = ..., redelivery_count: _Optional[int] = ..., consumer_epoch: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class LinkEnd(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class HelloRequest(_message.Message):
    __slots__ = ("version_min", "version_max", "client")
    VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    version_min: int
    version_max: int
    client: str
    def __init__(self, version_min: _Optional[int] = ..., version_max: _Optional[int] = ..., client: _Optional[str] = ...) -> None: ...

class HelloResponse(_message.Message):
    __slots__ = ("version_min", "version_max", "version", "message_bytes_max", "brokers")
    VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    version_min: int
    version_max: int
    version: int
    message_bytes_max: int
    brokers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version_min: _Optional[int] = ..., version_max: _Optional[int] = ..., version: _Optional[int] = ..., message_bytes_max: _Optional[int] = ..., brokers: _Optional[_Iterable[str]] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("open", "batches")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    open: OpenProducer
    batches: _containers.RepeatedCompositeFieldContainer[Batch]
    def __init__(self, open: _Optional[_Union[OpenProducer, _Mapping]] = ..., batches: _Optional[_Iterable[_Union[Batch, _Mapping]]] = ...) -> None: ...

class OpenProducer(_message.Message):
    __slots__ = ("topic", "partition", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    name: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("number", "data", "is_resent")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    IS_RESENT_FIELD_NUMBER: _ClassVar[int]
    number: int
    data: bytes
    is_resent: bool
    def __init__(self, number: _Optional[int] = ..., data: _Optional[bytes] = ..., is_resent: _Optional[bool] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("receipts", "end")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedCompositeFieldContainer[SendReceipt]
    end: LinkEnd
    def __init__(self, receipts: _Optional[_Iterable[_Union[SendReceipt, _Mapping]]] = ..., end: _Optional[_Union[LinkEnd, _Mapping]] = ...) -> None: ...

class SendReceipt(_message.Message):
    __slots__ = ("number", "position", "base_offset", "error")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    number: int
    position: Position
    base_offset: int
    error: Error
    def __init__(self, number: _Optional[int] = ..., position: _Optional[_Union[Position, _Mapping]] = ..., base_offset: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("open", "calls")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    open: OpenConsumer
    calls: _containers.RepeatedCompositeFieldContainer[ConsumerCall]
    def __init__(self, open: _Optional[_Union[OpenConsumer, _Mapping]] = ..., calls: _Optional[_Iterable[_Union[ConsumerCall, _Mapping]]] = ...) -> None: ...

class OpenConsumer(_message.Message):
    __slots__ = ("topic", "partition", "subscription", "type", "start", "is_start_inclusive", "is_durable", "consumer_name", "priority_level", "is_sticky", "key_ranges", "unacked_max", "unacked_subscription_max", "failover_delay_ms", "reports_read_position", "reads_compacted", "is_continued")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    IS_START_INCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    IS_DURABLE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    IS_STICKY_FIELD_NUMBER: _ClassVar[int]
    KEY_RANGES_FIELD_NUMBER: _ClassVar[int]
    UNACKED_MAX_FIELD_NUMBER: _ClassVar[int]
    UNACKED_SUBSCRIPTION_MAX_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_READ_POSITION_FIELD_NUMBER: _ClassVar[int]
    READS_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    IS_CONTINUED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    subscription: str
    type: str
    start: Target
    is_start_inclusive: bool
    is_durable: bool
    consumer_name: str
    priority_level: int
    is_sticky: bool
    key_ranges: _containers.RepeatedCompositeFieldContainer[KeyRange]
    unacked_max: int
    unacked_subscription_max: int
    failover_delay_ms: int
    reports_read_position: bool
    reads_compacted: bool
    is_continued: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., subscription: _Optional[str] = ..., type: _Optional[str] = ..., start: _Optional[_Union[Target, _Mapping]] = ..., is_start_inclusive: _Optional[bool] = ..., is_durable: _Optional[bool] = ..., consumer_name: _Optional[str] = ..., priority_level: _Optional[int] = ..., is_sticky: _Optional[bool] = ..., key_ranges: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ..., unacked_max: _Optional[int] = ..., unacked_subscription_max: _Optional[int] = ..., failover_delay_ms: _Optional[int] = ..., reports_read_position: _Optional[bool] = ..., reads_compacted: _Optional[bool] = ..., is_continued: _Optional[bool] = ...) -> None: ...

class KeyRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class ConsumerCall(_message.Message):
    __slots__ = ("permits", "acknowledge", "redeliver")
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    REDELIVER_FIELD_NUMBER: _ClassVar[int]
    permits: int
    acknowledge: Acknowledge
    redeliver: Redeliver
    def __init__(self, permits: _Optional[int] = ..., acknowledge: _Optional[_Union[Acknowledge, _Mapping]] = ..., redeliver: _Optional[_Union[Redeliver, _Mapping]] = ...) -> None: ...

class Acknowledge(_message.Message):
    __slots__ = ("request", "is_cumulative", "acknowledgements")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    IS_CUMULATIVE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGEMENTS_FIELD_NUMBER: _ClassVar[int]
    request: int
    is_cumulative: bool
    acknowledgements: _containers.RepeatedCompositeFieldContainer[Acknowledgement]
    def __init__(self, request: _Optional[int] = ..., is_cumulative: _Optional[bool] = ..., acknowledgements: _Optional[_Iterable[_Union[Acknowledgement, _Mapping]]] = ...) -> None: ...

class Redeliver(_message.Message):
    __slots__ = ("is_all", "masks", "consumer_epoch")
    IS_ALL_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    is_all: bool
    masks: _containers.RepeatedCompositeFieldContainer[RecordMask]
    consumer_epoch: int
    def __init__(self, is_all: _Optional[bool] = ..., masks: _Optional[_Iterable[_Union[RecordMask, _Mapping]]] = ..., consumer_epoch: _Optional[int] = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("deliveries", "receipts", "end", "read_position")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    READ_POSITION_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    receipts: _containers.RepeatedCompositeFieldContainer[AcknowledgeReceipt]
    end: LinkEnd
    read_position: ReadPosition
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., receipts: _Optional[_Iterable[_Union[AcknowledgeReceipt, _Mapping]]] = ..., end: _Optional[_Union[LinkEnd, _Mapping]] = ..., read_position: _Optional[_Union[ReadPosition, _Mapping]] = ...) -> None: ...

class ReadPosition(_message.Message):
    __slots__ = ("position", "consumer_epoch")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    position: Position
    consumer_epoch: int
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ..., consumer_epoch: _Optional[int] = ...) -> None: ...

class AcknowledgeReceipt(_message.Message):
    __slots__ = ("request", "error")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request: int
    error: Error
    def __init__(self, request: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("topic", "create")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    create: bool
    def __init__(self, topic: _Optional[str] = ..., create: _Optional[bool] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("name", "partition_count", "brokers", "leaders")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partition_count: int
    brokers: _containers.RepeatedScalarFieldContainer[str]
    leaders: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., partition_count: _Optional[int] = ..., brokers: _Optional[_Iterable[str]] = ..., leaders: _Optional[_Iterable[int]] = ...) -> None: ...

class GetLastRecordRequest(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class GetLastRecordResponse(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: RecordLocation
    def __init__(self, record: _Optional[_Union[RecordLocation, _Mapping]] = ...) -> None: ...

class GetCommittedEndsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetCommittedEndsResponse(_message.Message):
    __slots__ = ("ends",)
    ENDS_FIELD_NUMBER: _ClassVar[int]
    ends: _containers.RepeatedCompositeFieldContainer[Position]
    def __init__(self, ends: _Optional[_Iterable[_Union[Position, _Mapping]]] = ...) -> None: ...

class GetRecordRequest(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class GetRecordResponse(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: RecordLocation
    def __init__(self, record: _Optional[_Union[RecordLocation, _Mapping]] = ...) -> None: ...

class GetOffsetRequest(_message.Message):
    __slots__ = ("topic", "partition", "record_position")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORD_POSITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    record_position: RecordPosition
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., record_position: _Optional[_Union[RecordPosition, _Mapping]] = ...) -> None: ...

class GetOffsetResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "config")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    config: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreatePartitionsRequest(_message.Message):
    __slots__ = ("name", "count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class CreatePartitionsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class ListNamespacesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNamespacesResponse(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateNamespaceRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class CreateNamespaceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteNamespaceRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteNamespaceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPoliciesRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetPoliciesResponse(_message.Message):
    __slots__ = ("policies",)
    class PoliciesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.ScalarMap[str, str]
    def __init__(self, policies: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SetPoliciesRequest(_message.Message):
    __slots__ = ("name", "policies", "removed")
    class PoliciesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    name: str
    policies: _containers.ScalarMap[str, str]
    removed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., policies: _Optional[_Mapping[str, str]] = ..., removed: _Optional[_Iterable[str]] = ...) -> None: ...

class SetPoliciesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTopicStatsRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetTopicStatsResponse(_message.Message):
    __slots__ = ("name", "partitions", "subscriptions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionStats]
    subscriptions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionStats, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[str]] = ...) -> None: ...

class PartitionStats(_message.Message):
    __slots__ = ("log_start_offset", "end_offset", "size_bytes", "ledgers", "reads")
    class ReadsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    log_start_offset: int
    end_offset: int
    size_bytes: int
    ledgers: _containers.RepeatedCompositeFieldContainer[LedgerStats]
    reads: _containers.ScalarMap[str, int]
    def __init__(self, log_start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., ledgers: _Optional[_Iterable[_Union[LedgerStats, _Mapping]]] = ..., reads: _Optional[_Mapping[str, int]] = ...) -> None: ...

class LedgerStats(_message.Message):
    __slots__ = ("ledger_id", "entries", "size", "closed_ms", "offloaded", "primary_deleted")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CLOSED_MS_FIELD_NUMBER: _ClassVar[int]
    OFFLOADED_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_DELETED_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entries: int
    size: int
    closed_ms: int
    offloaded: bool
    primary_deleted: bool
    def __init__(self, ledger_id: _Optional[int] = ..., entries: _Optional[int] = ..., size: _Optional[int] = ..., closed_ms: _Optional[int] = ..., offloaded: _Optional[bool] = ..., primary_deleted: _Optional[bool] = ...) -> None: ...

class StartOffloadRequest(_message.Message):
    __slots__ = ("topic", "position", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    position: Position
    partition: int
    def __init__(self, topic: _Optional[str] = ..., position: _Optional[_Union[Position, _Mapping]] = ..., partition: _Optional[int] = ...) -> None: ...

class StartOffloadResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetOffloadStatusRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetOffloadStatusResponse(_message.Message):
    __slots__ = ("state", "error", "ledgers_left", "ends")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_LEFT_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    state: str
    error: str
    ledgers_left: int
    ends: _containers.RepeatedCompositeFieldContainer[Position]
    def __init__(self, state: _Optional[str] = ..., error: _Optional[str] = ..., ledgers_left: _Optional[int] = ..., ends: _Optional[_Iterable[_Union[Position, _Mapping]]] = ...) -> None: ...

class TerminateTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TerminateTopicResponse(_message.Message):
    __slots__ = ("last_records",)
    LAST_RECORDS_FIELD_NUMBER: _ClassVar[int]
    last_records: _containers.RepeatedCompositeFieldContainer[RecordLocation]
    def __init__(self, last_records: _Optional[_Iterable[_Union[RecordLocation, _Mapping]]] = ...) -> None: ...

class StartCompactionRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class StartCompactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCompactionStatusRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetCompactionStatusResponse(_message.Message):
    __slots__ = ("state", "error", "started_ms", "ended_ms", "horizons")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    HORIZONS_FIELD_NUMBER: _ClassVar[int]
    state: str
    error: str
    started_ms: int
    ended_ms: int
    horizons: _containers.RepeatedCompositeFieldContainer[CompactionHorizon]
    def __init__(self, state: _Optional[str] = ..., error: _Optional[str] = ..., started_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., horizons: _Optional[_Iterable[_Union[CompactionHorizon, _Mapping]]] = ...) -> None: ...

class CompactionHorizon(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: RecordLocation
    def __init__(self, record: _Optional[_Union[RecordLocation, _Mapping]] = ...) -> None: ...

class ListSubscriptionsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListSubscriptionsResponse(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateSubscriptionRequest(_message.Message):
    __slots__ = ("topic", "name", "start")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    start: Target
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., start: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...

class CreateSubscriptionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteSubscriptionRequest(_message.Message):
    __slots__ = ("topic", "name", "force")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    force: bool
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteSubscriptionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSubscriptionStatsRequest(_message.Message):
    __slots__ = ("topic", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class GetSubscriptionStatsResponse(_message.Message):
    __slots__ = ("type", "backlog", "unacknowledged", "consumers", "redelivery_rate", "revision_num", "is_under_revision")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_RATE_FIELD_NUMBER: _ClassVar[int]
    REVISION_NUM_FIELD_NUMBER: _ClassVar[int]
    IS_UNDER_REVISION_FIELD_NUMBER: _ClassVar[int]
    type: str
    backlog: int
    unacknowledged: int
    consumers: _containers.RepeatedScalarFieldContainer[str]
    redelivery_rate: float
    revision_num: int
    is_under_revision: bool
    def __init__(self, type: _Optional[str] = ..., backlog: _Optional[int] = ..., unacknowledged: _Optional[int] = ..., consumers: _Optional[_Iterable[str]] = ..., redelivery_rate: _Optional[float] = ..., revision_num: _Optional[int] = ..., is_under_revision: _Optional[bool] = ...) -> None: ...

class ResetSubscriptionRequest(_message.Message):
    __slots__ = ("topic", "name", "target", "partition", "inclusive")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    INCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    target: Target
    partition: int
    inclusive: bool
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., partition: _Optional[int] = ..., inclusive: _Optional[bool] = ...) -> None: ...

class ResetSubscriptionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SkipMessagesRequest(_message.Message):
    __slots__ = ("topic", "name", "count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    count: int
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class SkipMessagesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClearBacklogRequest(_message.Message):
    __slots__ = ("topic", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ClearBacklogResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("topic", "name", "count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    count: int
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[PeekedEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[PeekedEntry, _Mapping]]] = ...) -> None: ...

class PeekedEntry(_message.Message):
    __slots__ = ("partition", "position", "data", "records")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    position: Position
    data: bytes
    records: bytes
    def __init__(self, partition: _Optional[int] = ..., position: _Optional[_Union[Position, _Mapping]] = ..., data: _Optional[bytes] = ..., records: _Optional[bytes] = ...) -> None: ...

class MetricsClient(_message.Message):
    __slots__ = ("instance_id", "client_id", "software", "address", "subscriptions", "pushed_at_ms")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    PUSHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    client_id: str
    software: str
    address: str
    subscriptions: _containers.RepeatedScalarFieldContainer[str]
    pushed_at_ms: int
    def __init__(self, instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., software: _Optional[str] = ..., address: _Optional[str] = ..., subscriptions: _Optional[_Iterable[str]] = ..., pushed_at_ms: _Optional[int] = ...) -> None: ...

class ListMetricsClientsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListMetricsClientsResponse(_message.Message):
    __slots__ = ("clients",)
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    clients: _containers.RepeatedCompositeFieldContainer[MetricsClient]
    def __init__(self, clients: _Optional[_Iterable[_Union[MetricsClient, _Mapping]]] = ...) -> None: ...

class GetClientMetricsRequest(_message.Message):
    __slots__ = ("instance_id",)
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    def __init__(self, instance_id: _Optional[str] = ...) -> None: ...

class GetClientMetricsResponse(_message.Message):
    __slots__ = ("client", "data")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    client: MetricsClient
    data: bytes
    def __init__(self, client: _Optional[_Union[MetricsClient, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class NamedTopicOptions(_message.Message):
    __slots__ = ("retain_values", "element_expiry_ms", "subscriber_timeout_ms", "page_bytes", "max_unconsumed_bytes", "allow_unowned_commits")
    RETAIN_VALUES_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_UNCONSUMED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_UNOWNED_COMMITS_FIELD_NUMBER: _ClassVar[int]
    retain_values: bool
    element_expiry_ms: int
    subscriber_timeout_ms: int
    page_bytes: int
    max_unconsumed_bytes: int
    allow_unowned_commits: bool
    def __init__(self, retain_values: _Optional[bool] = ..., element_expiry_ms: _Optional[int] = ..., subscriber_timeout_ms: _Optional[int] = ..., page_bytes: _Optional[int] = ..., max_unconsumed_bytes: _Optional[int] = ..., allow_unowned_commits: _Optional[bool] = ...) -> None: ...

class NamedTopicInfo(_message.Message):
    __slots__ = ("name", "channel_count", "options")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_COUNT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    channel_count: int
    options: NamedTopicOptions
    def __init__(self, name: _Optional[str] = ..., channel_count: _Optional[int] = ..., options: _Optional[_Union[NamedTopicOptions, _Mapping]] = ...) -> None: ...

class OpenNamedTopicRequest(_message.Message):
    __slots__ = ("name", "channel_count", "options", "create")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_COUNT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    channel_count: int
    options: NamedTopicOptions
    create: bool
    def __init__(self, name: _Optional[str] = ..., channel_count: _Optional[int] = ..., options: _Optional[_Union[NamedTopicOptions, _Mapping]] = ..., create: _Optional[bool] = ...) -> None: ...

class DestroyNamedTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DestroyNamedTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNamedTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNamedTopicsResponse(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class EnsureSubscriberGroupRequest(_message.Message):
    __slots__ = ("topic", "group", "filter_name", "converter_name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_NAME_FIELD_NUMBER: _ClassVar[int]
    CONVERTER_NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    filter_name: str
    converter_name: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., filter_name: _Optional[str] = ..., converter_name: _Optional[str] = ...) -> None: ...

class EnsureSubscriberGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DestroySubscriberGroupRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class DestroySubscriberGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSubscriberGroupsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListSubscriberGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[SubscriberGroupInfo]
    def __init__(self, groups: _Optional[_Iterable[_Union[SubscriberGroupInfo, _Mapping]]] = ...) -> None: ...

class SubscriberGroupInfo(_message.Message):
    __slots__ = ("name", "is_anonymous", "subscribers", "filter_name", "converter_name", "channels")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IS_ANONYMOUS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_FIELD_NUMBER: _ClassVar[int]
    FILTER_NAME_FIELD_NUMBER: _ClassVar[int]
    CONVERTER_NAME_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    name: str
    is_anonymous: bool
    subscribers: _containers.RepeatedScalarFieldContainer[int]
    filter_name: str
    converter_name: str
    channels: _containers.RepeatedCompositeFieldContainer[ChannelEnds]
    def __init__(self, name: _Optional[str] = ..., is_anonymous: _Optional[bool] = ..., subscribers: _Optional[_Iterable[int]] = ..., filter_name: _Optional[str] = ..., converter_name: _Optional[str] = ..., channels: _Optional[_Iterable[_Union[ChannelEnds, _Mapping]]] = ...) -> None: ...

class ChannelEnds(_message.Message):
    __slots__ = ("channel", "owner", "head_offset", "end_offset", "committed_offset", "next_offset", "remaining")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    HEAD_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    channel: int
    owner: int
    head_offset: int
    end_offset: int
    committed_offset: int
    next_offset: int
    remaining: int
    def __init__(self, channel: _Optional[int] = ..., owner: _Optional[int] = ..., head_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., committed_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., remaining: _Optional[int] = ...) -> None: ...

class WaitForRoomRequest(_message.Message):
    __slots__ = ("topic", "size", "wait_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    size: int
    wait_ms: int
    def __init__(self, topic: _Optional[str] = ..., size: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class WaitForRoomResponse(_message.Message):
    __slots__ = ("has_room",)
    HAS_ROOM_FIELD_NUMBER: _ClassVar[int]
    has_room: bool
    def __init__(self, has_room: _Optional[bool] = ...) -> None: ...

class JoinSubscriberRequest(_message.Message):
    __slots__ = ("topic", "join")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    join: SubscriberJoin
    def __init__(self, topic: _Optional[str] = ..., join: _Optional[_Union[SubscriberJoin, _Mapping]] = ...) -> None: ...

class SubscriberJoin(_message.Message):
    __slots__ = ("group", "subscriber", "filter_name", "converter_name")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    FILTER_NAME_FIELD_NUMBER: _ClassVar[int]
    CONVERTER_NAME_FIELD_NUMBER: _ClassVar[int]
    group: str
    subscriber: int
    filter_name: str
    converter_name: str
    def __init__(self, group: _Optional[str] = ..., subscriber: _Optional[int] = ..., filter_name: _Optional[str] = ..., converter_name: _Optional[str] = ...) -> None: ...

class ChannelAllocation(_message.Message):
    __slots__ = ("group", "subscriber", "epoch", "channel_count", "channels", "filter_name", "converter_name")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    FILTER_NAME_FIELD_NUMBER: _ClassVar[int]
    CONVERTER_NAME_FIELD_NUMBER: _ClassVar[int]
    group: str
    subscriber: int
    epoch: int
    channel_count: int
    channels: _containers.RepeatedCompositeFieldContainer[OwnedChannel]
    filter_name: str
    converter_name: str
    def __init__(self, group: _Optional[str] = ..., subscriber: _Optional[int] = ..., epoch: _Optional[int] = ..., channel_count: _Optional[int] = ..., channels: _Optional[_Iterable[_Union[OwnedChannel, _Mapping]]] = ..., filter_name: _Optional[str] = ..., converter_name: _Optional[str] = ...) -> None: ...

class OwnedChannel(_message.Message):
    __slots__ = ("channel", "ownership", "next_offset", "revision")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIP_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    channel: int
    ownership: int
    next_offset: int
    revision: int
    def __init__(self, channel: _Optional[int] = ..., ownership: _Optional[int] = ..., next_offset: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class LeaveSubscriberRequest(_message.Message):
    __slots__ = ("topic", "group", "subscriber")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    subscriber: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., subscriber: _Optional[int] = ...) -> None: ...

class LeaveSubscriberResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PollChannelsRequest(_message.Message):
    __slots__ = ("topic", "poll")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    POLL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    poll: ChannelPoll
    def __init__(self, topic: _Optional[str] = ..., poll: _Optional[_Union[ChannelPoll, _Mapping]] = ...) -> None: ...

class ChannelPoll(_message.Message):
    __slots__ = ("group", "subscriber", "epoch", "silent_ms", "wait_ms", "bytes_max", "fetches")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    FETCHES_FIELD_NUMBER: _ClassVar[int]
    group: str
    subscriber: int
    epoch: int
    silent_ms: int
    wait_ms: int
    bytes_max: int
    fetches: _containers.RepeatedCompositeFieldContainer[ChannelFetch]
    def __init__(self, group: _Optional[str] = ..., subscriber: _Optional[int] = ..., epoch: _Optional[int] = ..., silent_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ..., bytes_max: _Optional[int] = ..., fetches: _Optional[_Iterable[_Union[ChannelFetch, _Mapping]]] = ...) -> None: ...

class ChannelFetch(_message.Message):
    __slots__ = ("channel", "ownership", "offset")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIP_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    channel: int
    ownership: int
    offset: int
    def __init__(self, channel: _Optional[int] = ..., ownership: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ChannelPollResult(_message.Message):
    __slots__ = ("allocation", "elements", "now_ms")
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    allocation: ChannelAllocation
    elements: _containers.RepeatedCompositeFieldContainer[ChannelElements]
    now_ms: int
    def __init__(self, allocation: _Optional[_Union[ChannelAllocation, _Mapping]] = ..., elements: _Optional[_Iterable[_Union[ChannelElements, _Mapping]]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class ElementFailure(_message.Message):
    __slots__ = ("offset", "reason")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    offset: int
    reason: str
    def __init__(self, offset: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ChannelElements(_message.Message):
    __slots__ = ("channel", "ownership", "start_offset", "next_offset", "batches", "failures")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIP_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    channel: int
    ownership: int
    start_offset: int
    next_offset: int
    batches: _containers.RepeatedScalarFieldContainer[bytes]
    failures: _containers.RepeatedCompositeFieldContainer[ElementFailure]
    def __init__(self, channel: _Optional[int] = ..., ownership: _Optional[int] = ..., start_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., batches: _Optional[_Iterable[bytes]] = ..., failures: _Optional[_Iterable[_Union[ElementFailure, _Mapping]]] = ...) -> None: ...

class CommitChannelsRequest(_message.Message):
    __slots__ = ("topic", "request")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    request: CommitRequest
    def __init__(self, topic: _Optional[str] = ..., request: _Optional[_Union[CommitRequest, _Mapping]] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("group", "subscriber", "channels", "offsets", "read_offsets", "revisions")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    READ_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    group: str
    subscriber: int
    channels: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    read_offsets: _containers.RepeatedScalarFieldContainer[int]
    revisions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., subscriber: _Optional[int] = ..., channels: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., read_offsets: _Optional[_Iterable[int]] = ..., revisions: _Optional[_Iterable[int]] = ...) -> None: ...

class CommitChannelsResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[CommitOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[CommitOutcome, _Mapping]]] = ...) -> None: ...

class CommitOutcome(_message.Message):
    __slots__ = ("status", "error", "reason", "count")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    status: str
    error: str
    reason: str
    count: int
    def __init__(self, status: _Optional[str] = ..., error: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class SeekChannelsRequest(_message.Message):
    __slots__ = ("topic", "request")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    request: SeekRequest
    def __init__(self, topic: _Optional[str] = ..., request: _Optional[_Union[SeekRequest, _Mapping]] = ...) -> None: ...

class SeekRequest(_message.Message):
    __slots__ = ("group", "subscriber", "is_committing", "targets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    IS_COMMITTING_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    subscriber: int
    is_committing: bool
    targets: _containers.RepeatedCompositeFieldContainer[ChannelTarget]
    def __init__(self, group: _Optional[str] = ..., subscriber: _Optional[int] = ..., is_committing: _Optional[bool] = ..., targets: _Optional[_Iterable[_Union[ChannelTarget, _Mapping]]] = ...) -> None: ...

class ChannelTarget(_message.Message):
    __slots__ = ("channel", "kind", "value")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    channel: int
    kind: str
    value: int
    def __init__(self, channel: _Optional[int] = ..., kind: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class SeekChannelsResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[SeekOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[SeekOutcome, _Mapping]]] = ...) -> None: ...

class SeekOutcome(_message.Message):
    __slots__ = ("channel", "offset", "next_offset", "revision")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    channel: int
    offset: int
    next_offset: int
    revision: int
    def __init__(self, channel: _Optional[int] = ..., offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class GetChannelEndsRequest(_message.Message):
    __slots__ = ("topic", "group", "subscriber", "channel")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    subscriber: int
    channel: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., subscriber: _Optional[int] = ..., channel: _Optional[int] = ...) -> None: ...

class GetChannelEndsResponse(_message.Message):
    __slots__ = ("channels",)
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedCompositeFieldContainer[ChannelEnds]
    def __init__(self, channels: _Optional[_Iterable[_Union[ChannelEnds, _Mapping]]] = ...) -> None: ...
