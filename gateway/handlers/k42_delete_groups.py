"""DeleteGroups, key 42, versions 0-2.

Behaviour:
- A group without members is deleted with its offsets in one write, and answered when that is
  durable. A group with members is NON_EMPTY_GROUP.
- Each requested name gets one entry; a repeated name is deleted once.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

KEY = 42
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete the groups."""
    group_ids = list(dict.fromkeys(request.groups_names))
    errors = await context.services.groups.offsets.delete_groups(group_ids)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in zip(group_ids, errors, strict=True)
        ]
    )
