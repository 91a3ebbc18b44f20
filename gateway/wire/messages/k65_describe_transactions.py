"""DescribeTransactions, key 65: the state of transactions."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct


class DescribeTransactionsRequest(ApiMessage, key=65, versions="0", flexible="0+"):
    """Transactional ids to describe."""

    transactional_ids: list[str] = []


class TopicData(Struct):
    """Partitions of one topic."""

    topic: str = ""
    partitions: list[Int32] = []


class TransactionState(Struct):
    """One transactional id."""

    error_code: Int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = []


class DescribeTransactionsResponse(ApiMessage, key=65, versions="0", flexible="0+"):
    """The state of each transactional id."""

    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []


REQUEST = DescribeTransactionsRequest
RESPONSE = DescribeTransactionsResponse
