"""LeaveGroup: one error for the request before version 3, one for each member since."""

import pytest

from kledger.gateway.handlers import k13_leave_group
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tests.gateway.handlers.group_bench import GroupBench, group_bench


async def leave(bench: GroupBench, version: int, request: LeaveGroupRequest) -> LeaveGroupResponse:
    return await k13_leave_group.handle(bench.context(version), request)


@pytest.mark.parametrize("version", range(3))
async def test_one_member_leaves(version: int) -> None:
    async with group_bench() as bench:
        member_id = await bench.stable()
        stranger = LeaveGroupRequest(group_id="g", member_id="x")
        nowhere = LeaveGroupRequest(group_id="", member_id=member_id)
        member = LeaveGroupRequest(group_id="g", member_id=member_id)

        assert (await leave(bench, version, stranger)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await leave(bench, version, nowhere)).error_code == ErrorCode.INVALID_GROUP_ID
        assert await leave(bench, version, member) == LeaveGroupResponse()
        assert (await leave(bench, version, member)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3, 6))
async def test_row_96_several_members_leave_by_id_and_by_instance(version: int) -> None:
    async with group_bench() as bench:
        await bench.stable(group_instance_id="i")
        request = LeaveGroupRequest(
            group_id="g",
            members=[
                MemberIdentity(member_id="x"),
                MemberIdentity(member_id="", group_instance_id="other"),
                MemberIdentity(member_id="", group_instance_id="i"),
            ],
        )

        assert await leave(bench, version, request) == LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id="x",
                    group_instance_id=None,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                ),
                MemberResponse(
                    member_id="",
                    group_instance_id="other",
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                ),
                MemberResponse(member_id="", group_instance_id="i"),
            ]
        )
        description = bench.services.groups.describe("g")
        assert description is not None
        assert description.state == "Empty"


async def test_whole_request_can_be_rejected() -> None:
    async with group_bench() as bench:
        request = LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="x")])
        refused = LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        assert await leave(bench, 5, request) == refused
