"""ExpireDelegationToken, key 40: let a token end earlier."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64


class ExpireDelegationTokenRequest(ApiMessage, key=40, versions="1-2", flexible="2+"):
    """A token to be ended."""

    hmac: bytes = b""
    expiry_time_period_ms: Int64 = 0


class ExpireDelegationTokenResponse(ApiMessage, key=40, versions="1-2", flexible="2+"):
    """Until when it holds."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


REQUEST = ExpireDelegationTokenRequest
RESPONSE = ExpireDelegationTokenResponse
