"""AlterConfigs, key 33, versions 0-2: the older way, which replaces a whole configuration.

Behaviour:
- Every resource gets one entry; a repeated resource, or one with a repeated setting, is refused.
- The client must be allowed to alter the configuration of the topic or group; of nodes and client
  metrics, that of the cluster.
- Settings that the request does not name return to their defaults.
- With ``validate_only`` nothing changes. Changes hold at once and survive a restart.
- Topics, groups, subscriptions to client metrics, and the settings of this node that
  `gateway.configs.broker_settings` allows can be changed; all others are INVALID_REQUEST.
"""

from kledger.gateway.config_rights import audit_configs, check_config_right
from kledger.gateway.configs.resource_requests import (
    alter_each,
    check_names_not_repeated,
    value_of,
)
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from kledger.security.acl_state import Operation

KEY = 33
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace the configuration of each resource."""

    async def alter(resource: AlterConfigsResource) -> None:
        check_config_right(context, Operation.ALTER_CONFIGS, resource)
        config_resource = context.services.configs.find_alterable(resource)
        check_names_not_repeated(resource.configs)
        configs = {setting.name: value_of(setting) for setting in resource.configs}
        await config_resource.alter(configs, replace=True, validate_only=request.validate_only)
        if not request.validate_only:
            audit_configs(context, resource, configs)

    outcomes = await alter_each(request.resources, alter)
    return AlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(**each._asdict()) for each in outcomes]
    )
