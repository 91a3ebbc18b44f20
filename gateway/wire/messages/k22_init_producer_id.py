"""InitProducerId, key 22: allocate a producer id."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, field


class InitProducerIdRequest(ApiMessage, key=22, versions="0-5", flexible="2+"):
    """A transactional id, or null for an idempotent producer."""

    transactional_id: str | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Int64 = field(versions="3+", default=-1)
    producer_epoch: Int16 = field(versions="3+", default=-1)


class InitProducerIdResponse(ApiMessage, key=22, versions="0-5", flexible="2+"):
    """A producer id and epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0


REQUEST = InitProducerIdRequest
RESPONSE = InitProducerIdResponse
