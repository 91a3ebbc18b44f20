"""DeleteAcls, key 31, versions 1-3.

Behaviour:
- There is no authorizer, so there are no rules to remove: SECURITY_DISABLED for each filter, as
  Apache Kafka answers without one.
"""

from kledger.gateway.api_errors import NO_AUTHORIZER
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k31_delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

KEY = 31
MIN_VERSION = 1
MAX_VERSION = 3


def handle(_context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuse every filter."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
            )
            for _ in request.filters
        ]
    )
