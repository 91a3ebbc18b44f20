"""RenewDelegationToken, key 39: extend the lifetime of a token."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64


class RenewDelegationTokenRequest(ApiMessage, key=39, versions="1-2", flexible="2+"):
    """The token to renew."""

    hmac: bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(ApiMessage, key=39, versions="1-2", flexible="2+"):
    """The token's new expiry time."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


REQUEST = RenewDelegationTokenRequest
RESPONSE = RenewDelegationTokenResponse
