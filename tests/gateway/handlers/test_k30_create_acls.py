"""CreateAcls; row 30 of docs/SCENARIOS.md."""

import pytest

from kledger.gateway.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest
from tests.gateway.running import running_gateway

SECURITY_DISABLED = 54


@pytest.mark.parametrize("version", range(1, 4))
async def test_row_30_every_rule_is_refused(version: int) -> None:
    rules = [AclCreation(resource_name=name, principal="User:a", host="*") for name in "ab"]
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(CreateAclsRequest(creations=rules), version)
        assert [SECURITY_DISABLED] * 2 == [each.error_code for each in answer.results]
