"""ExpireDelegationToken, key 40, versions 1-2 (KIP-48).

Behaviour:
- The owner and the renewers of a token can set when it expires, up to its maximum; a negative
  period removes it at once.
- Clients that did not authenticate, or did by a token, are refused with
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.token_expiry import change_expiry
from kledger.gateway.wire.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

KEY = 40
MIN_VERSION = 1
MAX_VERSION = 2


async def handle(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Set when a token expires, or remove it."""
    error_code, expiry_ms = await change_expiry(
        context,
        "expired delegation token",
        context.services.delegation_tokens.expire,
        hmac=request.hmac,
        period_ms=request.expiry_time_period_ms,
    )
    return ExpireDelegationTokenResponse(error_code=error_code, expiry_timestamp_ms=expiry_ms)
