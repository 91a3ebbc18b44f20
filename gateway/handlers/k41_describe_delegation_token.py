"""DescribeDelegationToken, key 41, versions 1-3 (KIP-48).

Behaviour:
- A client sees the tokens that it owns, requested or may renew; those of the requested principals
  alone, if it names some (an empty list: none). Tokens of others need Describe on the token, or
  DescribeTokens on the owner.
- Clients that did not authenticate, or did by a token, are refused with
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED; a server without a secret says
  DELEGATION_TOKEN_AUTH_DISABLED.

Version notes:
- v3 names the requester of each token (KIP-373).
"""

from kledger.gateway.api_errors import error_code_of
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k41_describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kledger.security.acl_state import Operation, ResourceType
from kledger.security.delegation_token_state import DelegationToken, DelegationTokenRefused
from kledger.security.delegation_tokens import IssuedToken
from kledger.security.principal import Principal

KEY = 41
MIN_VERSION = 1
MAX_VERSION = 3


def handle(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Describe the tokens that the client may see."""
    if not context.peer.may_use_token_requests:
        return DescribeDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        )
    named = None
    if request.owners is not None:
        named = {Principal(one.principal_name, one.principal_type) for one in request.owners}
    try:
        issued = context.services.delegation_tokens.all()
    except DelegationTokenRefused as error:
        return DescribeDelegationTokenResponse(error_code=error_code_of(error))
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(each)
            for each in issued
            if (named is None or any(map(each.token.concerns, named)))
            and _may_see(context, each.token)
        ]
    )


def _may_see(context: RequestContext, token: DelegationToken) -> bool:
    return (
        token.concerns(context.peer.principal)
        or context.authorize(
            Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, is_audited=False
        )
        or context.authorize(
            Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner), is_audited=False
        )
    )


def _described(issued: IssuedToken) -> DescribedDelegationToken:
    token = issued.token
    return DescribedDelegationToken(
        principal_type=token.owner.principal_type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.principal_type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=issued.hmac,
        renewers=[
            DescribedDelegationTokenRenewer(
                principal_type=each.principal_type, principal_name=each.name
            )
            for each in token.renewers
        ],
    )
