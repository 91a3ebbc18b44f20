"""DescribeDelegationToken, as Apache Kafka 4.3 answers on a listener without authentication."""

import pytest

from kledger.gateway.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenRequest,
)
from tests.gateway.running import running_gateway

NOT_ALLOWED = 64


@pytest.mark.parametrize("version", range(1, 4))
async def test_there_are_no_tokens(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(DescribeDelegationTokenRequest(owners=None), version)
        assert (NOT_ALLOWED, []) == (answer.error_code, answer.tokens)
