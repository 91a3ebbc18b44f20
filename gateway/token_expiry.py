"""Token expiry: requests of a client that change when a delegation token expires (KIP-48).

Rule: clients that did not authenticate, or did by a token, are refused with
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. What was changed is a line of the audit log.
Must not know: messages, when a token expires.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from kledger.gateway.api_errors import error_code_of
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError
from kledger.security.delegation_token_state import DelegationToken, DelegationTokenRefused
from kledger.security.principal import Principal

NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1

ChangeExpiry = Callable[[bytes, Principal, int], Awaitable[DelegationToken]]
"""Changes the token with an HMAC for a principal, by a period in milliseconds."""


async def change_expiry(
    context: RequestContext, event: str, change: ChangeExpiry, *, hmac: bytes, period_ms: int
) -> tuple[ErrorCode, int]:
    """Change a token, and return the error code and when the token expires.

    Args:
        context: of the request.
        event: what the audit log calls it.
        change: `renew` or `expire` of the server's tokens.
        hmac: of the token.
        period_ms: of the request.
    """
    peer = context.peer
    if not peer.may_use_token_requests:
        return NOT_ALLOWED
    try:
        changed = await change(hmac, peer.principal, period_ms)
    except (DelegationTokenRefused, LedgerError) as error:
        return error_code_of(error), 0
    context.services.audit.changed(event, peer.principal, peer.host, token=changed.token_id)
    return ErrorCode.NONE, changed.expiry_ms
