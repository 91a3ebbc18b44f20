"""CreateAcls, key 30, versions 1-3.

Behaviour:
- Each rule gets one entry; the valid ones are created together, in force when they are answered. A
  rule that exists is no error.
- Without an authorizer there is nothing that a rule could bind: SECURITY_DISABLED for each, as
  Apache Kafka answers without one.
- The client must be allowed to alter the cluster; the router asks for that.
- A code that does not exist ends the connection; one that only filters can have is
  UNKNOWN_SERVER_ERROR for every rule of the request.
"""

from kledger.gateway.acl_messages import is_for_filters, rule_of
from kledger.gateway.api_errors import NO_AUTHORIZER, error_code_of
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k30_create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kledger.ledger import LedgerError
from kledger.security.acl_state import AclRule, InvalidRule, check_rule
from kledger.security.authorizer import Authorizer, TooManyRules

KEY = 30
MIN_VERSION = 1
MAX_VERSION = 3


async def handle(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Create the valid rules."""
    authorizer = context.services.authorizer
    if authorizer is None:
        refusal = AclCreationResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
        return CreateAclsResponse(results=[refusal] * len(request.creations))
    rules = [rule_of(creation, context.version) for creation in request.creations]
    if any(map(is_for_filters, rules)):
        refusal = AclCreationResult(
            error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
            error_message="expected rules, got a value that only filters can have",
        )
        return CreateAclsResponse(results=[refusal] * len(rules))
    results = [_mistake(rule) for rule in rules]
    valid = [rule for rule, mistake in zip(rules, results, strict=True) if not mistake.error_code]
    failure = await _create(context, authorizer, valid)
    return CreateAclsResponse(
        results=[mistake if mistake.error_code else failure for mistake in results]
    )


def _mistake(rule: AclRule) -> AclCreationResult:
    try:
        check_rule(rule)
    except InvalidRule as error:
        return AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
    return AclCreationResult(error_message=None)


async def _create(
    context: RequestContext, authorizer: Authorizer, rules: list[AclRule]
) -> AclCreationResult:
    """Create rules, all or none; return the outcome of each."""
    try:
        await authorizer.create(rules)
    except TooManyRules as error:
        return AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
    except LedgerError as error:
        return AclCreationResult(error_code=error_code_of(error), error_message=str(error))
    for rule in rules:
        context.audit_rule("created rule", rule)
    return AclCreationResult(error_message=None)
