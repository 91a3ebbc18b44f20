"""RenewDelegationToken, key 39: make a token last longer."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64


class RenewDelegationTokenRequest(ApiMessage, key=39, versions="1-2", flexible="2+"):
    """A token to be renewed."""

    hmac: bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(ApiMessage, key=39, versions="1-2", flexible="2+"):
    """Until when it holds."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


REQUEST = RenewDelegationTokenRequest
RESPONSE = RenewDelegationTokenResponse
