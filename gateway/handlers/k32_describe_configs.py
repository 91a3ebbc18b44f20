"""DescribeConfigs, key 32, versions 1-4.

Behaviour:
- Every resource asked for gets one entry. No names asked for, or an empty list of them, means all
  (Kafka treats both alike); a name that does not exist is left out.
- A topic shows every setting it could have; this node shows what it was started with, and what was
  altered since; what cannot be altered is read-only. The empty broker name stands for all nodes: it
  shows what was altered for them.
- Another node's id, and kinds of resource that have no configuration here, are INVALID_REQUEST.

Version notes:
- v1 adds synonyms and sources (KIP-226), v3 types and documentation (KIP-569).
"""

from collections.abc import Iterable

from gateway.broker_settings import ALL_NODES
from gateway.config_entries import all_brokers_entries, altered_broker_entries, topic_entries
from gateway.config_resources import ResourceType
from gateway.context import RequestContext
from gateway.refusals import Refused, find_topic, refusal_of
from gateway.wire.error_codes import ErrorCode
from gateway.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from topics import TopicsError

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
        entries = _entries(context, resource)
    except (Refused, TopicsError) as error:
        result.error_code, result.error_message = refusal_of(error)
        return result
    wanted = set(resource.configuration_keys or ())
    result.configs = [entry for entry in entries if not wanted or entry.name in wanted]
    for entry in result.configs:
        if not request.include_synonyms:
            entry.synonyms = []
        if not request.include_documentation:
            entry.documentation = None
    return result


def _entries(
    context: RequestContext, resource: DescribeConfigsResource
) -> Iterable[DescribeConfigsResourceResult]:
    services = context.services
    settings = services.broker_settings
    if resource.resource_type == ResourceType.TOPIC:
        topic = find_topic(context, resource.resource_name)
        return topic_entries(topic.configs, services.registry.defaults, settings)
    if resource.resource_type == ResourceType.BROKER:
        settings.of(resource.resource_name)
        if resource.resource_name == ALL_NODES:
            return all_brokers_entries(settings)
        return altered_broker_entries(settings)
    raise Refused(
        ErrorCode.INVALID_REQUEST,
        f"expected resource type {ResourceType.TOPIC.value} (topic) or "
        f"{ResourceType.BROKER.value} (broker), got {resource.resource_type}",
    )
