"""DescribeUserScramCredentials, key 50, version 0 (KIP-554).

Behaviour:
- Null or an empty list: every user with a credential for SCRAM. Of a named one the mechanisms and
  iterations; without a credential RESOURCE_NOT_FOUND, named twice DUPLICATE_RESOURCE with one
  entry. Keys and salts are never shown, and users of PLAIN alone have no entry.
"""

from kledger.gateway.api_errors import first_of_each
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k50_describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kledger.security.credentials import BY_SASL_NAME
from kledger.security.users import Users

KEY = 50
MIN_VERSION = 0
MAX_VERSION = 0


def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Answer with the mechanisms and iterations of each user."""
    users = context.services.users
    if not request.users:
        results = [_described(users, name) for name in users.names]
        results = [each for each in results if each.credential_infos]
    else:
        results = [
            _described(users, user.name) if count == 1 else _named_twice(user.name)
            for user, count in first_of_each(request.users, lambda user: user.name)
        ]
    return DescribeUserScramCredentialsResponse(results=results)


def _described(users: Users, name: str) -> DescribeUserScramCredentialsResult:
    infos = [
        CredentialInfo(mechanism=BY_SASL_NAME[mechanism].code, iterations=credential.iterations)
        for mechanism, credential in users.credentials_of(name).items()
        if mechanism in BY_SASL_NAME
    ]
    if infos:
        return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.RESOURCE_NOT_FOUND,
        error_message=f"Attempt to describe a user credential that does not exist: {name}",
    )


def _named_twice(name: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.DUPLICATE_RESOURCE,
        error_message="Cannot describe SCRAM credentials for the same user twice in a single "
        f"request: {name}",
    )
