"""DeleteAcls, key 31, versions 1-3.

Behaviour:
- Each filter gets one entry with the rules that it matched; all of them are deleted together, and
  have no effect any more when the answer is sent. A filter that matches nothing is no error.
- Without an authorizer there are no rules to delete: SECURITY_DISABLED for each filter, as Apache
  Kafka answers without one.
- The client must be allowed to alter the cluster; the router asks for that.
- A code that does not exist ends the connection.
"""

from kledger.gateway.acl_messages import filter_of
from kledger.gateway.api_errors import NO_AUTHORIZER, error_code_of
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k31_delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kledger.ledger import LedgerError
from kledger.security.acl_state import AclRule

KEY = 31
MIN_VERSION = 1
MAX_VERSION = 3


async def handle(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the rules that match."""
    authorizer = context.services.authorizer
    if authorizer is None:
        return _refused(len(request.filters), ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    filters = [filter_of(each, context.version) for each in request.filters]
    try:
        found = await authorizer.delete(filters)
    except LedgerError as error:
        return _refused(len(filters), error_code_of(error), str(error))
    for rule in dict.fromkeys(rule for rules in found for rule in rules):
        context.audit_rule("deleted rule", rule)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_message=None, matching_acls=[_matching(rule) for rule in rules]
            )
            for rules in found
        ]
    )


def _refused(count: int, code: ErrorCode, message: str) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=code, error_message=message)
    return DeleteAclsResponse(filter_results=[result] * count)


def _matching(rule: AclRule) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=rule.pattern.resource_type,
        resource_name=rule.pattern.name,
        pattern_type=rule.pattern.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
