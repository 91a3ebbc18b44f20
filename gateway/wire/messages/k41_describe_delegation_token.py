"""DescribeDelegationToken, key 41: list tokens."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct, field


class DescribeDelegationTokenOwner(Struct):
    """A principal that owns tokens."""

    principal_type: str = ""
    principal_name: str = ""


class DescribeDelegationTokenRequest(ApiMessage, key=41, versions="1-3", flexible="2+"):
    """The owners whose tokens to describe."""

    owners: list[DescribeDelegationTokenOwner] | None = []


class DescribedDelegationTokenRenewer(Struct):
    """A principal that may renew the token."""

    principal_type: str = ""
    principal_name: str = ""


class DescribedDelegationToken(Struct):
    """One token."""

    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = field(versions="3+", default="")
    token_requester_principal_name: str = field(versions="3+", default="")
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = []


class DescribeDelegationTokenResponse(ApiMessage, key=41, versions="1-3", flexible="2+"):
    """The tokens that match."""

    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: Int32 = 0


REQUEST = DescribeDelegationTokenRequest
RESPONSE = DescribeDelegationTokenResponse
