"""DescribeDelegationToken, key 41, versions 1-3.

Behaviour:
- Nobody authenticates here, so there are no tokens: Apache Kafka's answer on a listener without
  authentication, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

KEY = 41
MIN_VERSION = 1
MAX_VERSION = 3


def handle(
    _context: RequestContext, _request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Refuse."""
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    )
