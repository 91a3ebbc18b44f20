"""ListConfigResources, key 74, versions 0-1 (KIP-1142).

Behaviour:
- Lists topics, this node, and the groups and subscriptions to client metrics that have settings;
  loggers have none here. An empty list of types means all; a type that does not exist is
  UNSUPPORTED_VERSION for the whole request.

Version notes:
- v0 lists client metrics alone.
"""

from kledger.gateway.configs.resource_requests import ConfigResourceType
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

KEY = 74
MIN_VERSION = 0
MAX_VERSION = 1


def handle(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources that have a configuration."""
    wanted = set(request.resource_types) or set(ConfigResourceType)
    if context.version == 0:
        wanted = {ConfigResourceType.CLIENT_METRICS}
    if not wanted <= set(ConfigResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, names in context.services.configs.names().items()
            if kind in wanted
            for name in names
        ]
    )
