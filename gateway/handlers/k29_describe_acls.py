"""DescribeAcls, key 29, versions 1-3.

Behaviour:
- There is no authorizer, so there are no rules to show: SECURITY_DISABLED, as Apache Kafka answers
  without one.
"""

from kledger.gateway.api_errors import NO_AUTHORIZER
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k29_describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
)

KEY = 29
MIN_VERSION = 1
MAX_VERSION = 3


def handle(_context: RequestContext, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Refuse, as there are no access rules."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
