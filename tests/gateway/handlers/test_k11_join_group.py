"""JoinGroup: the meaning of versions, and the answer on the wire."""

import pytest

from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k11_join_group import (
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from tests.gateway.handlers.group_bench import group_bench


@pytest.mark.parametrize("version", range(4))
async def test_row_83_old_versions_join_directly(version: int) -> None:
    async with group_bench() as bench:
        joined = await bench.join(version)

        assert joined.error_code == ErrorCode.NONE
        assert joined.members == [
            JoinGroupResponseMember(member_id=joined.member_id, metadata=b"r")
        ]


@pytest.mark.parametrize("version", range(4, 10))
async def test_row_82_later_versions_get_an_id_first(version: int) -> None:
    async with group_bench() as bench:
        first = await bench.join(version)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert first.member_id.startswith("client-")
        assert first.generation_id == -1

        second = await bench.join(version, member_id=first.member_id)

        assert (second.error_code, second.generation_id) == (ErrorCode.NONE, 1)
        assert second.member_id == second.leader == first.member_id


@pytest.mark.parametrize("version", range(5, 10))
async def test_row_83_static_members_join_directly(version: int) -> None:
    async with group_bench() as bench:
        joined = await bench.join(version, group_instance_id="i")

        assert joined.error_code == ErrorCode.NONE
        assert joined.members[0].group_instance_id == "i"


@pytest.mark.parametrize("version", range(10))
async def test_errors_can_be_encoded_in_every_version(version: int) -> None:
    """The protocol name of an error is null from version 7 and cannot be before."""
    async with group_bench() as bench:
        refused = await bench.join(version, session_timeout_ms=1)
        assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert refused.protocol_name == (None if version >= 7 else "")

        wire = memoryview(encode(refused, version))

        assert decode(JoinGroupResponse, version, wire) == refused


@pytest.mark.parametrize(("version", "expected"), [(6, ""), (7, None)])
async def test_protocol_without_a_name_is_null_or_empty(version: int, expected: str | None) -> None:
    async with group_bench() as bench:
        protocols = [JoinGroupRequestProtocol(name="", metadata=b"m")]
        joined = await bench.join(version, group_instance_id="i", protocols=protocols)
        assert (ErrorCode.NONE, expected) == (joined.error_code, joined.protocol_name)


async def test_version_0_has_no_rebalance_timeout_of_its_own() -> None:
    async with group_bench() as bench:
        joined = await bench.join(0, rebalance_timeout_ms=-1, session_timeout_ms=12_000)
        assert joined.error_code == ErrorCode.NONE

        description = bench.services.groups.describe("g")
        assert description is not None
        assert description.members[0].client_host == "/10.0.0.1"
        assert description.members[0].client_id == "client"


@pytest.mark.parametrize(("version", "skips"), [(8, False), (9, True)])
async def test_row_95_leader_may_skip_its_assignment_from_version_9(
    version: int, skips: bool
) -> None:
    async with group_bench() as bench:
        await bench.stable(group_instance_id="i")

        again = await bench.join(version, group_instance_id="i")

        assert again.error_code == ErrorCode.NONE
        assert again.skip_assignment is skips
        assert (again.leader == again.member_id) is skips


async def test_row_93_group_id_empty() -> None:
    async with group_bench() as bench:
        refused = await bench.join(group_id="")
        assert refused.error_code == ErrorCode.INVALID_GROUP_ID
