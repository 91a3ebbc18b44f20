"""Config rights: the right that a client needs to describe or alter a resource's configuration.

Rule: for a topic or a group it is a right on that topic or group; for all other resources it is a
right on the cluster, whichever node they name.
Must not know: which resources exist.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kledger.gateway.configs.resource_requests import ConfigResourceType, RequestedResource
from kledger.gateway.request_context import RequestContext
from kledger.security.acl_state import CLUSTER_NAME, Operation, ResourceType

AUTHORIZED_AS: Final[Mapping[int, ResourceType]] = {
    ConfigResourceType.TOPIC: ResourceType.TOPIC,
    ConfigResourceType.BROKER: ResourceType.CLUSTER,
    ConfigResourceType.BROKER_LOGGER: ResourceType.CLUSTER,
    ConfigResourceType.CLIENT_METRICS: ResourceType.CLUSTER,
    ConfigResourceType.GROUP: ResourceType.GROUP,
}
"""What the access rules call each type that has a configuration."""


def check_config_right(
    context: RequestContext, operation: Operation, resource: RequestedResource
) -> None:
    """Refuse a resource whose configuration the client may not describe or alter.

    A type that does not exist has no rights; the handler refuses it for that.

    Raises:
        ApiError: the client may not do it.
    """
    kind = AUTHORIZED_AS.get(resource.resource_type)
    if kind is not None:
        is_cluster = kind is ResourceType.CLUSTER
        context.check(operation, kind, CLUSTER_NAME if is_cluster else resource.resource_name)


def audit_configs(
    context: RequestContext, resource: RequestedResource, names: Iterable[str]
) -> None:
    """Log that the client altered settings of a resource, without their values."""
    kind = ConfigResourceType(resource.resource_type).name
    context.audit(
        "altered configuration",
        resource=f"{kind}:{resource.resource_name}",
        settings=",".join(sorted(names)),
    )
