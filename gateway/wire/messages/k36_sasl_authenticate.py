"""SaslAuthenticate, key 36: one token of a login."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int64, field


class SaslAuthenticateRequest(ApiMessage, key=36, versions="0-2", flexible="2+"):
    """A token of the client."""

    auth_bytes: bytes = b""


class SaslAuthenticateResponse(ApiMessage, key=36, versions="0-2", flexible="2+"):
    """The server's token, or why the login failed; at its end how long the session lasts."""

    error_code: Int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: Int64 = field(versions="1+", default=0)


REQUEST = SaslAuthenticateRequest
RESPONSE = SaslAuthenticateResponse
