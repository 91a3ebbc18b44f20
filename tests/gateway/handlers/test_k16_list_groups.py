"""ListGroups: filters and the fields of each version."""

import pytest

from kledger.gateway.handlers import k16_list_groups
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.messages.k16_list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tests.gateway.handlers.group_bench import group_bench
from tests.gateway.handlers.test_k68_consumer_group_heartbeat import (
    join as join_consumer_group,
)


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_in_every_version(version: int) -> None:
    async with group_bench() as bench:
        await bench.stable()

        response = k16_list_groups.handle(bench.context(version), ListGroupsRequest())

        wire = memoryview(encode(response, version))
        assert decode(ListGroupsResponse, version, wire).groups == [
            ListedGroup(
                group_id="g",
                protocol_type="consumer",
                group_state="Stable" if version >= 4 else "",
                group_type="classic" if version >= 5 else "",
            )
        ]


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        (["Stable"], [], ["g"]),
        (["stable", "Nonsense"], ["classic"], ["g"]),
        (["Empty"], [], ["quiet"]),
        ([], ["consumer", "share"], []),
        (["Nonsense"], [], []),
    ],
)
async def test_filters(states: list[str], types: list[str], expected: list[str]) -> None:
    async with group_bench() as bench:
        await bench.stable()
        await bench.commit(group_id="quiet")
        request = ListGroupsRequest(states_filter=states, types_filter=types)

        response = k16_list_groups.handle(bench.context(5), request)

        assert [group.group_id for group in response.groups] == expected


async def test_groups_of_both_protocols_have_their_type() -> None:
    async with group_bench() as bench:
        await bench.stable(group_id="old")
        await join_consumer_group(bench, "a")

        def listed(*types: str) -> list[tuple[str, str, str]]:
            request = ListGroupsRequest(types_filter=list(types))
            response = k16_list_groups.handle(bench.context(5), request)
            return [(one.group_id, one.protocol_type, one.group_type) for one in response.groups]

        assert [("g", "consumer", "consumer")] == listed("Consumer")
        assert [("old", "consumer", "classic")] == listed("classic")
        assert 2 == len(listed())
