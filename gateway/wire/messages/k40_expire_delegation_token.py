"""ExpireDelegationToken, key 40: change the expiry time of a token."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64


class ExpireDelegationTokenRequest(ApiMessage, key=40, versions="1-2", flexible="2+"):
    """The token to expire."""

    hmac: bytes = b""
    expiry_time_period_ms: Int64 = 0


class ExpireDelegationTokenResponse(ApiMessage, key=40, versions="1-2", flexible="2+"):
    """The token's new expiry time."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


REQUEST = ExpireDelegationTokenRequest
RESPONSE = ExpireDelegationTokenResponse
