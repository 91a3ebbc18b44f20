"""DeleteGroups, key 42, versions 0-2.

Behaviour:
- A group without members is deleted with its offsets in one write, and answered when that is
  durable. A group with members is NON_EMPTY_GROUP.
- The client must be allowed to delete the group.
- Each requested name gets one entry; a repeated name is deleted once.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kledger.security.acl_state import Operation, ResourceType

KEY = 42
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete the groups."""
    group_ids = list(dict.fromkeys(request.groups_names))
    errors = {
        group_id: context.refusal(Operation.DELETE, ResourceType.GROUP, group_id)
        for group_id in group_ids
    }
    deleted = [group_id for group_id, refused in errors.items() if not refused]
    if deleted:
        outcomes = await context.services.groups.offsets.delete_groups(deleted)
        errors.update(zip(deleted, outcomes, strict=True))
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in errors.items()
        ]
    )
