"""EndTxn, key 26: commit or abort a transaction."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, field


class EndTxnRequest(ApiMessage, key=26, versions="0-5", flexible="3+"):
    """The transaction to end: commit or abort."""

    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: bool = False


class EndTxnResponse(ApiMessage, key=26, versions="0-5", flexible="3+"):
    """The outcome, and the producer id and epoch for the next transaction."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = field(versions="5+", default=-1)
    producer_epoch: Int16 = field(versions="5+", default=-1)


REQUEST = EndTxnRequest
RESPONSE = EndTxnResponse
