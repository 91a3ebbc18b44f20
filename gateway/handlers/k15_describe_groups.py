"""DescribeGroups, key 15, versions 0-6.

Behaviour:
- Metadata and assignments are passed on as clients sent them; metadata only while the group is
  stable, assignments as long as they are in force.
- An unknown group is `Dead`; one of another coordinator gets the error alone.

Version notes:
- v3 adds the authorized operations (KIP-430), v4 the instance id (KIP-345).
- v6: an unknown group is an error too, GROUP_ID_NOT_FOUND (KIP-1043).
"""

from kledger.gateway.coordinator.group_messages import GroupDescription
from kledger.gateway.metadata.authorized_operations import (
    GROUP_OPERATIONS,
    OPERATIONS_NOT_REQUESTED,
)
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k15_describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

KEY = 15
MIN_VERSION = 0
MAX_VERSION = 6

FIRST_VERSION_WITH_NOT_FOUND = 6
UNKNOWN_GROUP_STATE = "Dead"


def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each requested group."""
    operations = OPERATIONS_NOT_REQUESTED
    if request.include_authorized_operations:
        operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(
        groups=[_describe(context, group_id, operations) for group_id in request.groups]
    )


def _describe(context: RequestContext, group_id: str, operations: int) -> DescribedGroup:
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
