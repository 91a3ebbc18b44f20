"""DescribeAcls, key 29, versions 1-3.

Behaviour:
- The rules that match the filter, by resource; `MATCH` asks for those that apply to a name.
- Without an authorizer there are no rules to show: SECURITY_DISABLED, as Apache Kafka answers
  without one.
- The client must be allowed to describe the cluster; the router asks for that.
- A code that does not exist ends the connection.
"""

from kledger.gateway.acl_messages import filter_of
from kledger.gateway.api_errors import NO_AUTHORIZER
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k29_describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kledger.security.acl_state import ResourcePattern

KEY = 29
MIN_VERSION = 1
MAX_VERSION = 3


def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Show the rules that match."""
    authorizer = context.services.authorizer
    if authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
    resources: dict[ResourcePattern, DescribeAclsResource] = {}
    for rule in authorizer.find(filter_of(request, context.version)):
        resource = resources.get(rule.pattern)
        if resource is None:
            resource = resources[rule.pattern] = DescribeAclsResource(
                resource_type=rule.pattern.resource_type,
                resource_name=rule.pattern.name,
                pattern_type=rule.pattern.pattern_type,
            )
        resource.acls.append(
            AclDescription(
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
