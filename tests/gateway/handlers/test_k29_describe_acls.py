"""DescribeAcls; row 30 of docs/SCENARIOS.md."""

import pytest

from kledger.gateway.wire.messages.k29_describe_acls import DescribeAclsRequest
from tests.gateway.running import running_gateway

SECURITY_DISABLED = 54


@pytest.mark.parametrize("version", range(1, 4))
async def test_row_30_without_an_authorizer_there_are_no_rules(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(DescribeAclsRequest(resource_type_filter=1, operation=1), version)
        assert (SECURITY_DISABLED, []) == (answer.error_code, answer.resources)
        assert "No Authorizer is configured" in answer.error_message
