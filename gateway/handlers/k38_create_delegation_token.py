"""CreateDelegationToken, key 38, versions 1-3.

Behaviour:
- A token stands for somebody who proved who he is, and here nobody does: Apache Kafka's answer on
  a listener without authentication, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Version notes:
- v3 names the owner and who asks (KIP-373).
"""

from kledger.gateway.api_errors import ANONYMOUS, USER
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

KEY = 38
MIN_VERSION = 1
MAX_VERSION = 3


def handle(
    _context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Refuse."""
    owner_type, owner_name = request.owner_principal_type, request.owner_principal_name
    if not owner_name or owner_type is None:
        owner_type, owner_name = USER, ANONYMOUS
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=USER,
        token_requester_principal_name=ANONYMOUS,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
