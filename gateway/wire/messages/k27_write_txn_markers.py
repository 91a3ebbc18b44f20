"""WriteTxnMarkers, key 27: write the markers that end a transaction."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Int64, Struct, field


class WritableTxnMarkerTopic(Struct):
    """Partitions of one topic."""

    name: str = ""
    partition_indexes: list[Int32] = []


class WritableTxnMarker(Struct):
    """The outcome of one transaction, and its partitions."""

    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0
    transaction_version: Int8 = field(versions="2+", default=0)


class WriteTxnMarkersRequest(ApiMessage, key=27, versions="1-2", flexible="1+"):
    """Markers to write."""

    markers: list[WritableTxnMarker] = []


class WritableTxnMarkerPartitionResult(Struct):
    """Outcome for one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    """Outcomes for one topic."""

    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerResult(Struct):
    """Outcomes for one producer."""

    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WriteTxnMarkersResponse(ApiMessage, key=27, versions="1-2", flexible="1+"):
    """Outcome for each partition."""

    markers: list[WritableTxnMarkerResult] = []


REQUEST = WriteTxnMarkersRequest
RESPONSE = WriteTxnMarkersResponse
