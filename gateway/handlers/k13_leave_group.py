"""LeaveGroup, key 13, versions 0-5.

Behaviour:
- The group rebalances at once; an id that was assigned but not used is forgotten. A group of the
  consumer protocol is stored without the members before the answer.
- The client must be allowed to read the group.
- From v3 on each member has its own error; a tool removes a static member by its instance id with
  an empty member id.

Version notes:
- v3 takes several members (KIP-345); before, the one member's error is that of the answer.
- v5 adds a reason (KIP-800), which is ignored.
"""

from functools import partial

from kledger.gateway.coordinator.group_messages import LeavingMember
from kledger.gateway.coordinator.groups.group_coordinator import LeaveResult
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from kledger.runtime.deferred import Deferred
from kledger.security.acl_state import Operation, ResourceType

KEY = 13
MIN_VERSION = 0
MAX_VERSION = 5

FIRST_VERSION_WITH_MEMBERS = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> Deferred[LeaveGroupResponse]:
    """Remove the members."""
    if refused := context.refusal(Operation.READ, ResourceType.GROUP, request.group_id):
        return Deferred.resolved(LeaveGroupResponse(error_code=refused))
    leaving = tuple(
        LeavingMember(member.member_id, member.group_instance_id) for member in request.members
    )
    if context.version < FIRST_VERSION_WITH_MEMBERS:
        leaving = (LeavingMember(request.member_id),)
    result = context.services.groups.leave(request.group_id, leaving)
    return result.mapped(partial(_response, context.version, leaving))


def _response(
    version: int, leaving: tuple[LeavingMember, ...], result: LeaveResult
) -> LeaveGroupResponse:
    error, errors = result
    if error is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=error)
    if version < FIRST_VERSION_WITH_MEMBERS:
        return LeaveGroupResponse(error_code=errors[0])
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
