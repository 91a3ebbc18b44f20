"""DescribeConfigs, key 32, versions 1-4.

Behaviour:
- Every resource gets one entry. Null or an empty list of names means all settings (Kafka treats
  both alike); a name that does not exist is left out.
- A topic shows every setting it can have; this node shows the settings of its start and those that
  were altered since; settings that cannot be altered are read-only. The empty broker name means all
  nodes, and shows the settings that were altered for them.
- The client must be allowed to describe the configuration of the topic or group; of nodes and
  client metrics, that of the cluster.
- Groups and subscriptions to client metrics show every setting they can have, even if they do not
  exist.
- Another node's id, and kinds of resource that have no configuration here, are INVALID_REQUEST.

Version notes:
- v1 adds synonyms and sources (KIP-226), v3 types and documentation (KIP-569).
"""

from kledger.gateway.api_errors import ApiError, code_and_message_of
from kledger.gateway.config_rights import check_config_right
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kledger.security.acl_state import Operation
from kledger.topics import TopicsError

KEY = 32
MIN_VERSION = 1
MAX_VERSION = 4


def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Show the configuration of each resource."""
    return DescribeConfigsResponse(
        results=[_describe(context, request, resource) for resource in request.resources]
    )


def _describe(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        check_config_right(context, Operation.DESCRIBE_CONFIGS, resource)
        entries = context.services.configs.find(resource).entries()
    except (ApiError, TopicsError) as error:
        result.error_code, result.error_message = code_and_message_of(error)
        return result
    wanted = set(resource.configuration_keys or ())
    result.configs = [entry for entry in entries if not wanted or entry.name in wanted]
    for entry in result.configs:
        if not request.include_synonyms:
            entry.synonyms = []
        if not request.include_documentation:
            entry.documentation = None
    return result
