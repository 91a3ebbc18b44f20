"""IncrementalAlterConfigs, key 44, versions 0-1 (KIP-339).

Behaviour:
- Every resource gets one entry; one that stands twice, or names a setting twice, is refused.
- SET gives a value, DELETE goes back to the default, APPEND and SUBTRACT work on lists only.
- A resource changes as a whole or not at all; with ``validate_only`` nothing changes. Changes hold
  at once and survive a restart.
- Only topics can be changed; anything else is INVALID_REQUEST.
"""

from collections import Counter
from enum import IntEnum

from gateway.config_resources import (
    alter_each,
    find_alterable_topic,
    replace_configs,
    value_of,
)
from gateway.context import RequestContext
from gateway.refusals import Refused
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


async def handle(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change single settings of each resource."""

    async def alter(resource: AlterConfigsResource) -> None:
        topic = find_alterable_topic(context, resource)
        configs = _changed(context, topic, resource)
        await replace_configs(context, topic, configs, validate_only=request.validate_only)

    outcomes = await alter_each(request.resources, alter)
    return IncrementalAlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(**each._asdict()) for each in outcomes]
    )


def _changed(
    context: RequestContext, topic: Topic, resource: AlterConfigsResource
) -> dict[str, str]:
    """Return the topic's own settings as they would be after the changes."""
    counts = Counter(change.name for change in resource.configs)
    for name, count in counts.items():
        if count > 1:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} stands {count} times")
    configs = dict(topic.configs)
    for change in resource.configs:
        if change.config_operation == Operation.DELETE:
            configs.pop(change.name, None)
        elif change.config_operation == Operation.SET:
            configs[change.name] = value_of(change.name, change.value)
        else:
            configs[change.name] = _changed_list(context, configs, change)
    return configs


def _changed_list(context: RequestContext, configs: dict[str, str], change: AlterableConfig) -> str:
    """Return a list setting with elements added, or taken away."""
    if change.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"{change.name}: expected operation 0 to 3, got {change.config_operation}",
        )
    key = CONFIG_KEYS.get(change.name)
    if key is None or key.type is not ConfigType.LIST:
        raise InvalidConfig(f"{change.name}: expected a setting that is a list")
    entries = describe(configs, context.services.registry.defaults)
    current = next(entry.value for entry in entries if entry.name == change.name)
    elements = [element for element in current.split(",") if element]
    named = [element.strip() for element in value_of(change.name, change.value).split(",")]
    if change.config_operation == Operation.APPEND:
        elements += [element for element in named if element not in elements]
    else:
        elements = [element for element in elements if element not in named]
    return ",".join(elements)
