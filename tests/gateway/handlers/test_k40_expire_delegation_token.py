"""ExpireDelegationToken, as Apache Kafka 4.3 answers on a listener without authentication."""

import pytest

from kledger.gateway.wire.messages.k40_expire_delegation_token import ExpireDelegationTokenRequest
from tests.gateway.running import running_gateway

NOT_ALLOWED = 64


@pytest.mark.parametrize("version", [1, 2])
async def test_there_is_no_token(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(ExpireDelegationTokenRequest(hmac=b"token"), version)
        assert (NOT_ALLOWED, -1) == (answer.error_code, answer.expiry_timestamp_ms)
