"""CreateDelegationToken, key 38, versions 1-3 (KIP-48).

Behaviour:
- The answer has the token's id and HMAC when the token is durable; with both its holder
  authenticates as the owner by SCRAM.
- Clients that did not authenticate, or did by a token, are refused with
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. A token for another owner needs CreateTokens on that user.
- Renewers are users, else INVALID_PRINCIPAL_TYPE. Too many renewers or tokens: POLICY_VIOLATION.

Version notes:
- v3 another owner than the requester (KIP-373).
"""

from kledger.gateway.api_errors import ApiError, error_code_of
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kledger.ledger import LedgerError
from kledger.security.acl_state import Operation, ResourceType
from kledger.security.delegation_token_state import DelegationTokenRefused
from kledger.security.delegation_tokens import IssuedToken
from kledger.security.principal import USER, Principal

KEY = 38
MIN_VERSION = 1
MAX_VERSION = 3


async def handle(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Create a token."""
    requester = context.peer.principal
    owner = requester
    if request.owner_principal_name and request.owner_principal_type is not None:
        owner = Principal(request.owner_principal_name, request.owner_principal_type)
    response = CreateDelegationTokenResponse(
        principal_type=owner.principal_type,
        principal_name=owner.name,
        token_requester_principal_type=requester.principal_type,
        token_requester_principal_name=requester.name,
    )
    try:
        issued = await _create(context, request, owner)
    except ApiError as error:
        # Kafka's broker, which finds these mistakes, and its controller fill the times differently.
        response.error_code = error.code
        response.issue_timestamp_ms = -1
        response.expiry_timestamp_ms = -1
        response.max_timestamp_ms = -1
    except (DelegationTokenRefused, LedgerError) as error:
        response.error_code = error_code_of(error)
    else:
        context.services.audit.changed(
            "created delegation token", requester, context.peer.host,
            token=issued.token.token_id, owner=str(owner),
        )  # fmt: skip
        response.issue_timestamp_ms = issued.token.issue_ms
        response.expiry_timestamp_ms = issued.token.expiry_ms
        response.max_timestamp_ms = issued.token.max_ms
        response.token_id = issued.token.token_id
        response.hmac = issued.hmac
    return response


async def _create(
    context: RequestContext, request: CreateDelegationTokenRequest, owner: Principal
) -> IssuedToken:
    requester = context.peer.principal
    if not context.peer.may_use_token_requests:
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "tokens are for clients that authenticated, and not by a token",
        )
    if owner != requester:
        context.check(Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
    renewers = [Principal(one.principal_name, one.principal_type) for one in request.renewers]
    if any(renewer.principal_type != USER for renewer in renewers):
        raise ApiError(
            ErrorCode.INVALID_PRINCIPAL_TYPE, f"expected renewers of the type {USER} alone"
        )
    return await context.services.delegation_tokens.create(
        owner=owner,
        requester=requester,
        renewers=renewers,
        max_lifetime_ms=request.max_lifetime_ms,
    )
