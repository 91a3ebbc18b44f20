"""LeaveGroup, key 13, versions 0-5.

Behaviour:
- The group rebalances at once; an id that was assigned but not used is forgotten.
- From v3 on each member has its own error; a tool removes a static member by its instance id with
  an empty member id.

Version notes:
- v3 takes several members (KIP-345); before, the one member's error is that of the answer.
- v5 adds a reason (KIP-800), which is ignored.
"""

from kledger.gateway.coordinator.group_messages import LeavingMember
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

KEY = 13
MIN_VERSION = 0
MAX_VERSION = 5

FIRST_VERSION_WITH_MEMBERS = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove the members."""
    groups = context.services.groups
    if context.version < FIRST_VERSION_WITH_MEMBERS:
        error, errors = groups.leave(request.group_id, (LeavingMember(request.member_id),))
        return LeaveGroupResponse(error_code=error or errors[0])
    leaving = tuple(
        LeavingMember(member.member_id, member.group_instance_id) for member in request.members
    )
    error, errors = groups.leave(request.group_id, leaving)
    if error is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=leaving_member.member_id,
                group_instance_id=leaving_member.instance_id,
                error_code=member_error,
            )
            for leaving_member, member_error in zip(leaving, errors, strict=True)
        ]
    )
