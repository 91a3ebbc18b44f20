"""DeleteAcls, as Apache Kafka 4.3 answers without an authorizer."""

import pytest

from kledger.gateway.wire.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.gateway.running import running_gateway

SECURITY_DISABLED = 54


@pytest.mark.parametrize("version", range(1, 4))
async def test_every_filter_is_refused(version: int) -> None:
    filters = [DeleteAclsFilter(resource_type_filter=kind) for kind in (2, 3)]
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(DeleteAclsRequest(filters=filters), version)
        outcomes = [(each.error_code, each.matching_acls) for each in answer.filter_results]
        assert [(SECURITY_DISABLED, [])] * 2 == outcomes
