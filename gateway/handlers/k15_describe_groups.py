"""DescribeGroups, key 15, versions 0-6.

Behaviour:
- Metadata and assignments are passed on as clients sent them; metadata only while the group is
  stable, assignments as long as they are in force.
- A group that the client may not describe has the error alone, whether it exists or not.
- An unknown group is `Dead`; one of another coordinator gets the error alone.

Version notes:
- v3 adds the authorized operations (KIP-430), v4 the instance id (KIP-345).
- v6: an unknown group is an error too, GROUP_ID_NOT_FOUND (KIP-1043).
"""

from kledger.gateway.coordinator.group_messages import GroupDescription
from kledger.gateway.metadata.authorized_operations import OPERATIONS_NOT_REQUESTED
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k15_describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kledger.security.acl_state import Operation, ResourceType

KEY = 15
MIN_VERSION = 0
MAX_VERSION = 6

FIRST_VERSION_WITH_NOT_FOUND = 6
UNKNOWN_GROUP_STATE = "Dead"


def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each requested group."""
    with_operations = request.include_authorized_operations
    return DescribeGroupsResponse(
        groups=[_describe(context, group_id, with_operations) for group_id in request.groups]
    )


def _describe(context: RequestContext, group_id: str, with_operations: bool) -> DescribedGroup:
    if refused := context.refusal(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return DescribedGroup(error_code=refused, group_id=group_id)
    operations = OPERATIONS_NOT_REQUESTED
    if with_operations:
        operations = context.authorized_operations(ResourceType.GROUP, group_id)
    description = context.services.groups.describe(group_id)
    if description is not None:
        return _described(description, operations)
    if error := context.services.groups.error(group_id):
        return DescribedGroup(error_code=error, group_id=group_id)
    if context.version >= FIRST_VERSION_WITH_NOT_FOUND:
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} not found.",
            group_id=group_id,
            group_state=UNKNOWN_GROUP_STATE,
        )
    return DescribedGroup(
        group_id=group_id, group_state=UNKNOWN_GROUP_STATE, authorized_operations=operations
    )


def _described(description: GroupDescription, operations: int) -> DescribedGroup:
    return DescribedGroup(
        group_id=description.group_id,
        group_state=description.state,
        protocol_type=description.protocol_type,
        protocol_data=description.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in description.members
        ],
        authorized_operations=operations,
    )
