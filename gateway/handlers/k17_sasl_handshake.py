"""SaslHandshake, key 17, versions 0-1 (KIP-43).

Behaviour:
- Logins are handled before requests get here (`gateway.net.login`): this answers a client that is
  connected to a listener without SASL, or that began another login less than a second ago, with
  ILLEGAL_SASL_STATE, as Apache Kafka does.

Version notes:
- After v0 the tokens follow as frames of their own, after v1 as SaslAuthenticate (KIP-152).
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k17_sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

KEY = 17
MIN_VERSION = 0
MAX_VERSION = 1


def handle(_context: RequestContext, _request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
