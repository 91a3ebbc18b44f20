"""AddOffsetsToTxn, key 25: add a group's offsets to a transaction."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64


class AddOffsetsToTxnRequest(ApiMessage, key=25, versions="0-4", flexible="3+"):
    """The group to add to a transaction."""

    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(ApiMessage, key=25, versions="0-4", flexible="3+"):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


REQUEST = AddOffsetsToTxnRequest
RESPONSE = AddOffsetsToTxnResponse
