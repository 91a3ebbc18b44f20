"""ListGroups, key 16, versions 0-5.

Behaviour:
- Lists groups with members and groups that only hold offsets; those have no protocol type.
- Groups of other coordinators are not listed. While some are being loaded the answer is
  COORDINATOR_LOAD_IN_PROGRESS: a part of the groups would look like all of them.
- A client that may not describe the cluster sees the groups that it may describe.
- Filters ignore case; one that matches no group gives an empty list.

Version notes:
- v4 adds states and their filter (KIP-518), v5 types and their filter (KIP-848).
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k16_list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kledger.security.acl_state import Operation, ResourceType

KEY = 16
MIN_VERSION = 0
MAX_VERSION = 5


def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups that match the filters."""
    if context.services.groups.shards.is_loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    listings = context.services.groups.list_groups(request.states_filter, request.types_filter)
    sees_all = context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, is_audited=False)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=listing.group_id,
                protocol_type=listing.protocol_type,
                group_state=listing.state,
                group_type=listing.group_type,
            )
            for listing in listings
            if sees_all
            or context.authorize(
                Operation.DESCRIBE, ResourceType.GROUP, listing.group_id, is_audited=False
            )
        ]
    )
