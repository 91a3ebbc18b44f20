"""RenewDelegationToken, key 39, versions 1-2.

Behaviour:
- Nobody authenticates here, so there are no tokens: Apache Kafka's answer on a listener without
  authentication, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

KEY = 39
MIN_VERSION = 1
MAX_VERSION = 2


def handle(
    _context: RequestContext, _request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Refuse."""
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
    )
