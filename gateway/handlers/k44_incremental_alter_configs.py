"""IncrementalAlterConfigs, key 44, versions 0-1 (KIP-339).

Behaviour:
- Every resource gets one entry; one that stands twice, or names a setting twice, is refused.
- SET gives a value, DELETE goes back to the default, APPEND and SUBTRACT work on lists only.
- To take back a setting that was not set, or that does not exist, is no mistake.
- A resource changes as a whole or not at all; with ``validate_only`` nothing changes. Changes hold
  at once and survive a restart.
- Requests are carried out one after another, so that a list which two of them add to gets both.
- Only topics can be changed; anything else is INVALID_REQUEST.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import IntEnum

from gateway.config_resources import (
    alter_each,
    alter_topic,
    find_alterable_topic,
    refuse_repeated_names,
    value_of,
)
from gateway.context import RequestContext
from gateway.refusals import Refused
from gateway.services import Services
from gateway.wire.error_codes import ErrorCode
from gateway.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from topics import CONFIG_KEYS, ConfigType, InvalidConfig, Topic, describe

KEY = 44
MIN_VERSION = 0
MAX_VERSION = 1


class Operation(IntEnum):
    """What to do with one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Handle = Callable[
    [RequestContext, IncrementalAlterConfigsRequest], Awaitable[IncrementalAlterConfigsResponse]
]


def bind(_services: Services) -> Handle:
    """Return the handler of one server, which carries out one request at a time."""
    changing = asyncio.Lock()

    async def handle(
        context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """Change single settings of each resource."""

        async def alter(resource: AlterConfigsResource) -> None:
            topic = find_alterable_topic(context, resource)
            changes = _changes(context, topic, resource)
            await alter_topic(
                context, topic, changes, replace=False, validate_only=request.validate_only
            )

        async with changing:
            outcomes = await alter_each(request.resources, alter)
        return IncrementalAlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(**each._asdict()) for each in outcomes]
        )

    return handle


def _changes(
    context: RequestContext, topic: Topic, resource: AlterConfigsResource
) -> dict[str, str | None]:
    """Return the new values by name; None for those that go back to their defaults."""
    refuse_repeated_names(resource.configs)
    changes: dict[str, str | None] = {}
    for change in resource.configs:
        if change.config_operation == Operation.SET:
            changes[change.name] = value_of(change)
        elif change.config_operation != Operation.DELETE:
            changes[change.name] = _changed_list(context, topic, change)
        elif change.name in CONFIG_KEYS:
            changes[change.name] = None
    return changes


def _changed_list(context: RequestContext, topic: Topic, change: AlterableConfig) -> str:
    """Return a list setting with elements added, or taken away."""
    if change.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"{change.name}: expected operation 0 to 3, got {change.config_operation}",
        )
    named = [element.strip() for element in value_of(change).split(",")]
    key = CONFIG_KEYS.get(change.name)
    if key is None or key.type is not ConfigType.LIST:
        raise InvalidConfig(f"{change.name}: expected a setting that is a list")
    entries = describe(topic.configs, context.services.registry.defaults)
    current = next(entry.value for entry in entries if entry.name == change.name)
    elements = [element for element in current.split(",") if element]
    if change.config_operation == Operation.APPEND:
        elements += [element for element in named if element not in elements]
    else:
        elements = [element for element in elements if element not in named]
    return ",".join(elements)
