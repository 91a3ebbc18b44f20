"""CreateDelegationToken, as Apache Kafka 4.3 answers on a listener without authentication."""

import pytest

from kledger.gateway.wire.messages.k38_create_delegation_token import CreateDelegationTokenRequest
from tests.gateway.running import running_gateway

NOT_ALLOWED = 64


@pytest.mark.parametrize("version", range(1, 4))
async def test_nobody_gets_a_token(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(CreateDelegationTokenRequest(), version)
        assert (NOT_ALLOWED, "", b"", -1) == (
            answer.error_code,
            answer.token_id,
            answer.hmac,
            answer.expiry_timestamp_ms,
        )
        assert ("User", "ANONYMOUS") == (answer.principal_type, answer.principal_name)


async def test_the_owner_asked_for_is_named_beside_who_asks() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        request = CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="a"
        )
        answer = await client.ask(request, 3)
        assert "a" == answer.principal_name
        assert "ANONYMOUS" == answer.token_requester_principal_name


async def test_an_owner_without_a_type_stays_without() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        request = CreateDelegationTokenRequest(owner_principal_type="", owner_principal_name="a")
        answer = await client.ask(request, 3)
        assert ("", "a") == (answer.principal_type, answer.principal_name)
