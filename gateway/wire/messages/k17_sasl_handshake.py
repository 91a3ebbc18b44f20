"""SaslHandshake, key 17: choose the mechanism of a login."""

from kledger.gateway.wire.schema import ApiMessage, Int16


class SaslHandshakeRequest(ApiMessage, key=17, versions="0-1", flexible="none"):
    """The mechanism that the client chooses."""

    mechanism: str = ""


class SaslHandshakeResponse(ApiMessage, key=17, versions="0-1", flexible="none"):
    """Whether it is enabled, and the mechanisms that are."""

    error_code: Int16 = 0
    mechanisms: list[str] = []


REQUEST = SaslHandshakeRequest
RESPONSE = SaslHandshakeResponse
