"""ListTransactions, key 66: list transactions."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct, field


class ListTransactionsRequest(ApiMessage, key=66, versions="0-2", flexible="0+"):
    """Filters; empty ones match all."""

    state_filters: list[str] = []
    producer_id_filters: list[Int64] = []
    duration_filter: Int64 = field(versions="1+", default=-1)
    transactional_id_pattern: str | None = field(versions="2+", default=None)


class TransactionState(Struct):
    """One transactional id."""

    transactional_id: str = ""
    producer_id: Int64 = 0
    transaction_state: str = ""


class ListTransactionsResponse(ApiMessage, key=66, versions="0-2", flexible="0+"):
    """The transactions that match."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[TransactionState] = []


REQUEST = ListTransactionsRequest
RESPONSE = ListTransactionsResponse
