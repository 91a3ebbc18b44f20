"""Heartbeat: the group's error, in every version."""

import pytest

from kledger.gateway.handlers import k12_heartbeat
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest
from tests.gateway.handlers.group_bench import group_bench


@pytest.mark.parametrize("version", range(5))
async def test_row_85_heartbeat(version: int) -> None:
    async with group_bench() as bench:
        member_id = await bench.stable()

        def heartbeat(**changes: object) -> int:
            request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
            for name, value in changes.items():
                setattr(request, name, value)
            return k12_heartbeat.handle(bench.context(version), request).error_code

        assert heartbeat() == ErrorCode.NONE
        assert heartbeat(generation_id=2) == ErrorCode.ILLEGAL_GENERATION
        assert heartbeat(member_id="x") == ErrorCode.UNKNOWN_MEMBER_ID
        assert heartbeat(group_id="x") == ErrorCode.UNKNOWN_MEMBER_ID
        assert heartbeat(group_id="") == ErrorCode.INVALID_GROUP_ID
        assert heartbeat(group_instance_id="x") == ErrorCode.UNKNOWN_MEMBER_ID
