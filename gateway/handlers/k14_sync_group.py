"""SyncGroup, key 14, versions 0-5.

Behaviour:
- The leader sends the assignments; all members are answered when these are durable. In a stable
  group the answer is immediate.
- The client must be allowed to read the group.
- Members that the leader left out get an empty assignment.

Version notes:
- v3 adds the instance id (KIP-345); v5 adds protocol type and name, which are required and must be
  those of the generation (KIP-559).
"""

from kledger.gateway.coordinator.group_messages import SyncCommand, SyncResult
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from kledger.runtime.deferred import Deferred
from kledger.security.acl_state import Operation, ResourceType

KEY = 14
MIN_VERSION = 0
MAX_VERSION = 5

FIRST_VERSION_WITH_PROTOCOL = 5


def handle(context: RequestContext, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
    """Ask for the member's assignment."""
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.version >= FIRST_VERSION_WITH_PROTOCOL and not names_protocol:
        inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return Deferred.resolved(SyncGroupResponse(error_code=inconsistent))
    if refused := context.refusal(Operation.READ, ResourceType.GROUP, request.group_id):
        return Deferred.resolved(SyncGroupResponse(error_code=refused))
    command = SyncCommand(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={item.member_id: item.assignment for item in request.assignments},
    )
    return context.services.groups.sync(command).mapped(_response)


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
