"""SyncGroup: assignments pass through, protocol type and name since version 5."""

import pytest

from kledger.gateway.handlers import k14_sync_group
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from tests.gateway.handlers.group_bench import group_bench


@pytest.mark.parametrize("version", range(6))
async def test_member_of_a_stable_group_gets_its_assignment(version: int) -> None:
    async with group_bench() as bench:
        member_id = await bench.stable()
        request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id)
        if version >= 5:
            request.protocol_type, request.protocol_name = "consumer", "range"

        assert await k14_sync_group.handle(bench.context(version), request) == SyncGroupResponse(
            protocol_type="consumer", protocol_name="range", assignment=b"all"
        )


async def test_row_90_wrong_protocol_name() -> None:
    async with group_bench() as bench:
        member_id = await bench.stable()
        request = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="coop",
        )

        refused = await k14_sync_group.handle(bench.context(5), request)

        assert refused == SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@pytest.mark.parametrize(("kind", "name"), [(None, "range"), ("consumer", None), (None, None)])
async def test_row_90_version_5_must_name_the_protocol(kind: str | None, name: str | None) -> None:
    async with group_bench() as bench:
        member_id = await bench.stable()
        request = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member_id,
            protocol_type=kind,
            protocol_name=name,
        )

        refused = await k14_sync_group.handle(bench.context(5), request)

        assert refused == SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
