"""CreateDelegationToken, key 38: create a token for authentication."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct, field


class CreatableRenewers(Struct):
    """A principal that may renew the token."""

    principal_type: str = ""
    principal_name: str = ""


class CreateDelegationTokenRequest(ApiMessage, key=38, versions="1-3", flexible="2+"):
    """The token to create."""

    owner_principal_type: str | None = field(versions="3+", default="")
    owner_principal_name: str | None = field(versions="3+", default="")
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: Int64 = 0


class CreateDelegationTokenResponse(ApiMessage, key=38, versions="1-3", flexible="2+"):
    """The token."""

    error_code: Int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = field(versions="3+", default="")
    token_requester_principal_name: str = field(versions="3+", default="")
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: Int32 = 0


REQUEST = CreateDelegationTokenRequest
RESPONSE = CreateDelegationTokenResponse
