"""AddPartitionsToTxn, key 24: add partitions to a transaction."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct, field


class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = ""
    partitions: list[Int32] = []


class AddPartitionsToTxnTransaction(Struct):
    """One transaction; brokers send several."""

    transactional_id: str = field(versions="4+", default="")
    producer_id: Int64 = field(versions="4+", default=0)
    producer_epoch: Int16 = field(versions="4+", default=0)
    verify_only: bool = field(versions="4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field(versions="4+", default=[])


class AddPartitionsToTxnRequest(ApiMessage, key=24, versions="0-5", flexible="3+"):
    """Partitions to add, or to verify."""

    transactions: list[AddPartitionsToTxnTransaction] = field(versions="4+", default=[])
    v3_and_below_transactional_id: str = field(versions="0-3", default="")
    v3_and_below_producer_id: Int64 = field(versions="0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field(versions="0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(versions="0-3", default=[])


class AddPartitionsToTxnPartitionResult(Struct):
    """Outcome for one partition."""

    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    """Outcomes for one topic."""

    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnResult(Struct):
    """Outcomes for one transaction."""

    transactional_id: str = field(versions="4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = field(versions="4+", default=[])


class AddPartitionsToTxnResponse(ApiMessage, key=24, versions="0-5", flexible="3+"):
    """Outcome for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(versions="4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(versions="4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        versions="0-3", default=[]
    )


REQUEST = AddPartitionsToTxnRequest
RESPONSE = AddPartitionsToTxnResponse
