"""JoinGroup, key 11, versions 0-9.

Behaviour:
- Waits until the generation begins: all members have rejoined, or the rebalance timeout has passed.
- Only the leader gets the members, with their metadata as they sent it.
- The client must be allowed to read the group.
- A follower that rejoins unchanged is answered at once; the leader's join is a rebalance.

Version notes:
- v1 adds the rebalance timeout (KIP-62); before, the session timeout is used for it.
- v4: a dynamic member without an id first gets one with MEMBER_ID_REQUIRED (KIP-394).
- v5 adds static members (KIP-345), v7 the protocol type in the answer (KIP-559), with a null
  protocol name on errors.
- v8 adds a reason (KIP-800), which is ignored; v9 lets a leader skip the assignment (KIP-814).
"""

from functools import partial

from kledger.gateway.coordinator.group_messages import JoinCommand, JoinResult
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kledger.runtime.deferred import Deferred
from kledger.security.acl_state import Operation, ResourceType

KEY = 11
MIN_VERSION = 0
MAX_VERSION = 9

FIRST_VERSION_REQUIRING_ID = 4
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_WITH_SKIP = 9


def handle(context: RequestContext, request: JoinGroupRequest) -> Deferred[JoinGroupResponse]:
    """Join, and answer when the generation begins."""
    if refused := context.refusal(Operation.READ, ResourceType.GROUP, request.group_id):
        result = JoinResult(error=refused)
        return Deferred.resolved(_response(context.version, result))
    joining = context.services.groups.join(_command(context, request))
    return joining.mapped(partial(_response, context.version))


def _command(context: RequestContext, request: JoinGroupRequest) -> JoinCommand:
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = request.session_timeout_ms
    return JoinCommand(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.peer.host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        requires_known_id=context.version >= FIRST_VERSION_REQUIRING_ID,
        can_skip_assignment=context.version >= FIRST_VERSION_WITH_SKIP,
    )


def _response(version: int, result: JoinResult) -> JoinGroupResponse:
    protocol_name = result.protocol_name or None
    if protocol_name is None and version < FIRST_VERSION_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ],
    )
