"""RenewDelegationToken, key 39, versions 1-2 (KIP-48).

Behaviour:
- The owner and the renewers of a token can extend its life, up to its maximum.
- Clients that did not authenticate, or did by a token, are refused with
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from kledger.gateway.api_errors import error_code_of
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kledger.ledger import LedgerError
from kledger.security.delegation_token_state import DelegationTokenRefused

KEY = 39
MIN_VERSION = 1
MAX_VERSION = 2


async def handle(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Extend the life of a token."""
    response = RenewDelegationTokenResponse()
    if not context.peer.may_use_token_requests:
        response.error_code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        response.expiry_timestamp_ms = -1
        return response
    peer = context.peer
    try:
        changed = await context.services.delegation_tokens.renew(
            request.hmac, peer.principal, request.renew_period_ms
        )
        response.expiry_timestamp_ms = changed.expiry_ms
        context.services.audit.changed(
            "renewed delegation token", peer.principal, peer.host, token=changed.token_id
        )
    except (DelegationTokenRefused, LedgerError) as error:
        response.error_code = error_code_of(error)
    return response
