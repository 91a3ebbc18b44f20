"""DescribeGroups: members of stable groups as they are; unknown groups by version."""

import pytest

from kledger.gateway.handlers import k15_describe_groups
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k11_join_group import JoinGroupRequestProtocol
from kledger.gateway.wire.messages.k15_describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tests.gateway.handlers.group_bench import GroupBench, group_bench


def describe(
    bench: GroupBench, version: int, *groups: str, asks: bool = False
) -> list[DescribedGroup]:
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=asks)
    response = k15_describe_groups.handle(bench.context(version), request)
    wire = memoryview(encode(response, version))
    return decode(DescribeGroupsResponse, version, wire).groups


async def test_row_104_stable_group_with_metadata_that_is_no_subscription() -> None:
    async with group_bench() as bench:
        odd = b"\x00\x01\x00\x00"
        protocols = [JoinGroupRequestProtocol(name="range", metadata=odd)]
        member_id = await bench.stable(protocols=protocols, group_instance_id="i")

        assert describe(bench, 6, "g") == [
            DescribedGroup(
                group_id="g",
                group_state="Stable",
                protocol_type="consumer",
                protocol_data="range",
                members=[
                    DescribedGroupMember(
                        member_id=member_id,
                        group_instance_id="i",
                        client_id="client",
                        client_host="/10.0.0.1",
                        member_metadata=odd,
                        member_assignment=b"all",
                    )
                ],
            )
        ]


@pytest.mark.parametrize("version", range(7))
async def test_row_35_unknown_group(version: int) -> None:
    async with group_bench() as bench:
        (unknown,) = describe(bench, version, "unknown")

        assert unknown.group_state == "Dead"
        expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
        assert unknown.error_code == expected


async def test_group_that_only_holds_offsets_is_empty() -> None:
    async with group_bench() as bench:
        await bench.commit()

        described = describe(bench, 5, "g", "g")

        assert [group.group_state for group in described] == ["Empty", "Empty"]
        assert described[0].protocol_type == ""


async def test_row_22_operations_only_when_asked_for() -> None:
    async with group_bench() as bench:
        await bench.commit()

        assert describe(bench, 5, "g")[0].authorized_operations == -(2**31)
        (asked,) = describe(bench, 5, "g", asks=True)
        assert asked.authorized_operations & (1 << 3 | 1 << 6 | 1 << 8)
