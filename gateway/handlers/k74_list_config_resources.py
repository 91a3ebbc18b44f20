"""ListConfigResources, key 74, versions 0-1 (KIP-1142).

Behaviour:
- Topics and this node have a configuration; loggers, groups and client metrics have none here, and
  none of them is listed. No types asked for means all; a type that does not exist refuses the
  request as UNSUPPORTED_VERSION.

Version notes:
- v0 lists client metrics alone.
"""

from gateway.config_resources import ResourceType
from gateway.context import RequestContext
from gateway.wire.error_codes import ErrorCode
from gateway.wire.messages.k74_list_config_resources import (
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
    """List what has a configuration."""
    if context.version == 0:
        return ListConfigResourcesResponse()
    wanted = set(request.resource_types) or set(ResourceType)
    if not wanted <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    services = context.services
    names = {
        ResourceType.TOPIC: [topic.name for topic in services.registry.all()],
        ResourceType.BROKER: [str(services.config.node_id)],
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in names
            if kind in wanted
            for name in names[kind]
        ]
    )
