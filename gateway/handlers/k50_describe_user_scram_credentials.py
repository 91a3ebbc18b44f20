"""DescribeUserScramCredentials, key 50, version 0 (KIP-554).

Behaviour:
- The server stores no passwords. All users: an empty list. A named user is RESOURCE_NOT_FOUND, a
  repeated one DUPLICATE_RESOURCE with one entry.
"""

from kledger.gateway.api_errors import first_of_each
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

KEY = 50
MIN_VERSION = 0
MAX_VERSION = 0


def handle(
    _context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Answer for each user that there is no password."""
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            _outcome(user.name, count)
            for user, count in first_of_each(request.users or (), lambda user: user.name)
        ],
    )


def _outcome(user: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    else:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message)
