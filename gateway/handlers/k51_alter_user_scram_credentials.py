"""AlterUserScramCredentials, key 51, version 0 (KIP-554).

Behaviour:
- Listeners do not authenticate, so the server stores no passwords: setting one is
  UNSUPPORTED_SASL_MECHANISM, removing one RESOURCE_NOT_FOUND.
- Each user gets one entry. A repeated user is DUPLICATE_RESOURCE, an empty name
  UNACCEPTABLE_CREDENTIAL, a mechanism that does not exist UNSUPPORTED_SASL_MECHANISM.
"""

from kledger.gateway.api_errors import first_of_each
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

KEY = 51
MIN_VERSION = 0
MAX_VERSION = 0

MECHANISMS = (1, 2)
"""SCRAM-SHA-256 and SCRAM-SHA-512."""

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def handle(
    _context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Refuse every change."""
    changes: list[Change] = [*request.deletions, *request.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[
            _outcome(change, count)
            for change, count in first_of_each(changes, lambda change: change.name)
        ]
    )


def _outcome(change: Change, count: int) -> AlterUserScramCredentialsResult:
    """Four cases: no name, an unknown mechanism, a repeated user, and a valid change."""
    if not change.name:
        code, message = ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    elif change.mechanism not in MECHANISMS:
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        message = f"Unknown SCRAM mechanism: expected 1 or 2, got {change.mechanism}"
    elif count > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"{change.name!r} is named {count} times"
    elif isinstance(change, ScramCredentialDeletion):
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"The user credential of {change.name!r} does not exist"
    else:
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        message = "listeners do not authenticate, so the server stores no passwords"
    return AlterUserScramCredentialsResult(user=change.name, error_code=code, error_message=message)
