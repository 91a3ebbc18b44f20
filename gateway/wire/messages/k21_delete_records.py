"""DeleteRecords, key 21: delete records below an offset."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct


class DeleteRecordsPartition(Struct):
    """The first offset to keep; -1 is the high watermark."""

    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Struct):
    """Partitions of one topic."""

    name: str = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsRequest(ApiMessage, key=21, versions="0-2", flexible="2+"):
    """The new log start offset of each partition."""

    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Struct):
    """The resulting log start offset; -1 on an error."""

    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Struct):
    """Outcomes for one topic."""

    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsResponse(ApiMessage, key=21, versions="0-2", flexible="2+"):
    """The resulting log start offsets."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []


REQUEST = DeleteRecordsRequest
RESPONSE = DeleteRecordsResponse
