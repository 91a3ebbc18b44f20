"""RenewDelegationToken, key 39, versions 1-2 (KIP-48).

Behaviour:
- The owner and the renewers of a token can extend its life, up to its maximum.
- Clients that did not authenticate, or did by a token, are refused with
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.token_expiry import change_expiry
from kledger.gateway.wire.messages.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

KEY = 39
MIN_VERSION = 1
MAX_VERSION = 2


async def handle(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Extend the life of a token."""
    error_code, expiry_ms = await change_expiry(
        context,
        "renewed delegation token",
        context.services.delegation_tokens.renew,
        hmac=request.hmac,
        period_ms=request.renew_period_ms,
    )
    return RenewDelegationTokenResponse(error_code=error_code, expiry_timestamp_ms=expiry_ms)
