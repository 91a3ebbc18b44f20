"""Heartbeat, key 12, versions 0-4.

Behaviour:
- Renews the session of a member of the running generation; nothing is written.
- The client must be allowed to read the group.
- REBALANCE_IN_PROGRESS makes the member rejoin; the session is renewed all the same.

Version notes:
- v3 adds the instance id (KIP-345).
"""

from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kledger.security.acl_state import Operation, ResourceType

KEY = 12
MIN_VERSION = 0
MAX_VERSION = 4


def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Renew the member's session."""
    if refused := context.refusal(Operation.READ, ResourceType.GROUP, request.group_id):
        return HeartbeatResponse(error_code=refused)
    sender = RequestingMember(request.member_id, request.generation_id, request.group_instance_id)
    error = context.services.groups.heartbeat(request.group_id, sender)
    return HeartbeatResponse(error_code=error)
