"""AlterConfigs, key 33, versions 0-2: the older way, which replaces a whole configuration.

Behaviour:
- Every resource gets one entry; one that stands twice is refused.
- What a topic had and the request does not name goes back to its default.
- With ``validate_only`` nothing changes. Changes hold at once and survive a restart.
- Only topics can be changed; anything else is INVALID_REQUEST.
"""

from gateway.config_resources import (
    alter_each,
    find_alterable_topic,
    replace_configs,
    value_of,
)
from gateway.context import RequestContext
from gateway.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

KEY = 33
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace the configuration of each resource."""

    async def alter(resource: AlterConfigsResource) -> None:
        topic = find_alterable_topic(context, resource)
        configs = _replaced(resource)
        await replace_configs(context, topic, configs, validate_only=request.validate_only)

    outcomes = await alter_each(request.resources, alter)
    return AlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(**each._asdict()) for each in outcomes]
    )


def _replaced(resource: AlterConfigsResource) -> dict[str, str]:
    return {config.name: value_of(config.name, config.value) for config in resource.configs}
