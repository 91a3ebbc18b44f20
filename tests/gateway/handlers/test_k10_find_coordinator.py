"""FindCoordinator: one node coordinates everything, one entry per key."""

import pytest

from kledger.gateway.handlers import k10_find_coordinator
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.gateway.handlers.group_bench import GroupBench, group_bench


def find(
    bench: GroupBench, version: int, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    response = k10_find_coordinator.handle(bench.context(version), request)
    return decode(FindCoordinatorResponse, version, memoryview(encode(response, version)))


@pytest.mark.parametrize("version", range(4))
async def test_row_36_one_key(version: int) -> None:
    async with group_bench() as bench:
        found = find(bench, version, FindCoordinatorRequest(key="g"))

        assert (found.node_id, found.host, found.port) == (1, "kafka.test", 9092)
        assert found.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(4, 7))
@pytest.mark.parametrize("key_type", [0, 1])
async def test_row_36_an_entry_for_each_key(version: int, key_type: int) -> None:
    async with group_bench() as bench:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b", "a"])

        found = find(bench, version, request)

        assert found.coordinators == [
            Coordinator(key=key, node_id=1, host="kafka.test", port=9092, error_message=None)
            for key in ("a", "b", "a")
        ]


@pytest.mark.parametrize("key_type", [2, 3, -1])
async def test_key_type_without_a_coordinator(key_type: int) -> None:
    async with group_bench() as bench:
        many = find(bench, 6, FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a"]))
        one = find(bench, 3, FindCoordinatorRequest(key_type=key_type, key="a"))

        assert many.coordinators[0].error_code == one.error_code == ErrorCode.INVALID_REQUEST
        assert many.coordinators[0].node_id == one.node_id == -1
