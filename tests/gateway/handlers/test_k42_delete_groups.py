"""DeleteGroups: one entry per name."""

from kledger.gateway.handlers import k42_delete_groups
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from tests.gateway.handlers.group_bench import group_bench


async def test_row_103_members_unknown_and_empty() -> None:
    async with group_bench() as bench:
        await bench.stable()
        await bench.commit(group_id="quiet")
        request = DeleteGroupsRequest(groups_names=["g", "unknown", "quiet", "quiet"])

        response = await k42_delete_groups.handle(bench.context(2), request)

        assert response == DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id="g", error_code=ErrorCode.NON_EMPTY_GROUP),
                DeletableGroupResult(group_id="unknown", error_code=ErrorCode.GROUP_ID_NOT_FOUND),
                DeletableGroupResult(group_id="quiet"),
            ]
        )
        assert bench.fetched(group_id="quiet") == -1
        assert bench.services.groups.group_count == 1
