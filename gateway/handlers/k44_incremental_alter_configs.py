"""IncrementalAlterConfigs, key 44, versions 0-1 (KIP-339).

Behaviour:
- Every resource gets one entry; a repeated resource, or one with a repeated setting, is refused.
- The client must be allowed to alter the configuration of the topic or group; of nodes and client
  metrics, that of the cluster.
- SET sets a value, DELETE restores the default, APPEND and SUBTRACT work on lists only.
- DELETE of a setting that is not set, or does not exist, is no error.
- Changes of a resource are atomic; with ``validate_only`` nothing changes. They take effect at once
  and survive a restart.
- Requests are executed one after another, so that a list gets the additions of all.
- Topics, groups, subscriptions to client metrics, and the settings of this node that
  `gateway.configs.broker_settings` allows can be changed; all others are INVALID_REQUEST.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import IntEnum

from kledger.gateway.api_errors import ApiError
from kledger.gateway.config_rights import audit_configs, check_config_right
from kledger.gateway.configs.config_resources import ConfigResource, current_list
from kledger.gateway.configs.resource_requests import (
    alter_each,
    check_names_not_repeated,
    value_of,
)
from kledger.gateway.request_context import RequestContext
from kledger.gateway.services import Services
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kledger.security.acl_state import Operation

KEY = 44
MIN_VERSION = 0
MAX_VERSION = 1


class ConfigOperation(IntEnum):
    """The operation on one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Handle = Callable[
    [RequestContext, IncrementalAlterConfigsRequest], Awaitable[IncrementalAlterConfigsResponse]
]


def bind(_services: Services) -> Handle:
    """Return the handler of one server, which executes one request at a time."""
    changing = asyncio.Lock()

    async def handle(
        context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """Change single settings of each resource."""

        async def alter(resource: AlterConfigsResource) -> None:
            check_config_right(context, Operation.ALTER_CONFIGS, resource)
            config_resource = context.services.configs.find_alterable(resource)
            changes = _changes(config_resource, resource)
            await config_resource.alter(changes, replace=False, validate_only=request.validate_only)
            if not request.validate_only:
                audit_configs(context, resource, changes)

        async with changing:
            outcomes = await alter_each(request.resources, alter)
        return IncrementalAlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(**each._asdict()) for each in outcomes]
        )

    return handle


def _changes(
    config_resource: ConfigResource, resource: AlterConfigsResource
) -> dict[str, str | None]:
    """Return the new values by name; None restores the default."""
    check_names_not_repeated(resource.configs)
    changes: dict[str, str | None] = {}
    for change in resource.configs:
        if change.config_operation == ConfigOperation.SET:
            changes[change.name] = value_of(change)
        elif change.config_operation != ConfigOperation.DELETE:
            changes[change.name] = _changed_list(config_resource, change)
        elif change.name in config_resource.keys:
            changes[change.name] = None
    return changes


def _changed_list(config_resource: ConfigResource, change: AlterableConfig) -> str:
    """Return a list setting with elements added or removed."""
    if change.config_operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{change.name}: expected operation 0 to 3, got {change.config_operation}",
        )
    named = [element.strip() for element in value_of(change).split(",")]
    elements = current_list(
        config_resource, change.name, ConfigOperation(change.config_operation).name
    )
    if change.config_operation == ConfigOperation.APPEND:
        elements += [element for element in named if element not in elements]
    else:
        elements = [element for element in elements if element not in named]
    return ",".join(elements)
