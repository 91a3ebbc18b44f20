"""SaslAuthenticate, key 36, versions 0-2 (KIP-152).

Behaviour:
- Logins are handled before requests get here (`gateway.net.login`): this answers a client that is
  connected to a listener without SASL, or that is logged in, with ILLEGAL_SASL_STATE, as Apache
  Kafka does.

Version notes:
- v1 adds how long the session lasts (KIP-368), v2 is flexible.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

KEY = 36
MIN_VERSION = 0
MAX_VERSION = 2


def handle(_context: RequestContext, _request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Refuse."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
