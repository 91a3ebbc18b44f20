"""DescribeCluster; row 22 of docs/SCENARIOS.md, and what Apache Kafka 4.3 answers."""

import pytest

from kledger.gateway.wire.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tests.gateway.running import running_gateway

INT_MIN = -(2**31)
ALL_OPERATIONS = 8096
MISMATCHED, UNSUPPORTED = 114, 115


@pytest.mark.parametrize("version", range(3))
async def test_row_22_one_node_and_operations_only_when_asked_for(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        for asked, operations in ((False, INT_MIN), (True, ALL_OPERATIONS)):
            request = DescribeClusterRequest(include_cluster_authorized_operations=asked)
            assert DescribeClusterResponse(
                cluster_id="cluster-for-tests-0000",
                controller_id=1,
                brokers=[DescribeClusterBroker(broker_id=1, host="127.0.0.1", port=gateway.port)],
                cluster_authorized_operations=operations,
            ) == await client.ask(request, version)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, MISMATCHED), (0, UNSUPPORTED), (3, UNSUPPORTED)]
)
async def test_only_brokers_are_described(endpoint_type: int, code: int, version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        response = await client.ask(DescribeClusterRequest(endpoint_type=endpoint_type), version)
        assert (code, []) == (response.error_code, response.brokers)
        assert response.error_message


async def test_fenced_brokers_are_none() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        response = await client.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
        assert [(1, False)] == [(each.broker_id, each.is_fenced) for each in response.brokers]
