"""CreateAcls, key 30, versions 1-3.

Behaviour:
- There is no authorizer that a rule could bind: SECURITY_DISABLED for each, as Apache Kafka
  answers without one.
"""

from kledger.gateway.api_errors import NO_AUTHORIZER
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k30_create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

KEY = 30
MIN_VERSION = 1
MAX_VERSION = 3


def handle(_context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Refuse every rule."""
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.creations
        ]
    )
