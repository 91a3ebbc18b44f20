"""A delegation token from its creation to its end, over the wire (KIP-48)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import kledger
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from kledger.gateway.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from kledger.gateway.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from kledger.gateway.wire.messages.k38_create_delegation_token import CreateDelegationTokenRequest
from kledger.gateway.wire.messages.k40_expire_delegation_token import ExpireDelegationTokenRequest
from kledger.gateway.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenRequest,
)
from kledger.ledger.testing import ManualClock
from kledger.security.authorizer import STANDARD_AUTHORIZER
from kledger.security.credentials import ScramMechanism
from kledger.security.delegation_token_state import scram_password
from kledger.setting_values import split_address
from kledger.testing import Server
from tests.gateway.wire_client import WireClient
from tests.security.sasl.test_scram_state import Client

FAILED, NOT_ALLOWED = 58, 64
SETTINGS: dict[str, object] = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="ann-pw";'
    ),
    "delegation.token.secret.key": "s3cret",
}


@asynccontextmanager
async def handshaken(server: Server, mechanism: str) -> AsyncIterator[WireClient]:
    async with WireClient(*split_address("kafka", server.kafka_address)) as client:
        answer = await client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        assert 0 == answer.error_code
        yield client


async def scram(client: WireClient, user: Client) -> tuple[int, int]:
    """Log in; return the error code, and how long the session lasts."""
    first = await client.ask(SaslAuthenticateRequest(auth_bytes=user.first()), 2)
    if first.error_code:
        return first.error_code, 0
    final = user.final(bytes(first.auth_bytes))
    last = await client.ask(SaslAuthenticateRequest(auth_bytes=final), 2)
    return last.error_code, last.session_lifetime_ms


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_a_token_logs_in_as_its_owner_until_it_ends(mechanism: ScramMechanism) -> None:
    async with Server(settings=SETTINGS) as server, handshaken(server, "PLAIN") as ann:
        plain = SaslAuthenticateRequest(auth_bytes=b"\0ann\0ann-pw")
        assert 0 == (await ann.ask(plain, 2)).error_code
        made = await ann.ask(CreateDelegationTokenRequest(max_lifetime_ms=600_000), 3)
        assert (0, "ann") == (made.error_code, made.principal_name)
        holder = Client(
            mechanism=mechanism,
            user=made.token_id,
            password=scram_password(made.hmac),
            extensions=",tokenauth=true",
        )
        async with handshaken(server, mechanism.sasl_name) as client:
            code, session_ms = await scram(client, holder)
            assert 0 == code
            assert 0 < session_ms <= 600_000
            assert await client.ask(MetadataRequest(topics=[]), 9)
            for request in (CreateDelegationTokenRequest(), DescribeDelegationTokenRequest()):
                assert NOT_ALLOWED == (await client.ask(request, 3)).error_code
        for wrong in (
            holder._replace(extensions=""),
            holder._replace(password="x"),
            holder._replace(user="ann", password="ann-pw"),
        ):
            async with handshaken(server, mechanism.sasl_name) as client:
                assert FAILED == (await scram(client, wrong))[0]
        removal = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        assert 0 == (await ann.ask(removal, 2)).error_code
        async with handshaken(server, mechanism.sasl_name) as client:
            assert FAILED == (await scram(client, holder))[0]


async def test_a_token_logs_native_clients_in_as_its_owner() -> None:
    rules = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ann"}
    async with (
        Server(settings=SETTINGS | rules, native="127.0.0.1:0") as server,
        handshaken(server, "PLAIN") as ann,
    ):
        plain = SaslAuthenticateRequest(auth_bytes=b"\0ann\0ann-pw")
        assert 0 == (await ann.ask(plain, 2)).error_code
        made = await ann.ask(CreateDelegationTokenRequest(max_lifetime_ms=600_000), 3)
        url, password = f"kledger://{server.native_address}", scram_password(made.hmac)
        async with kledger.connect(url, username=made.token_id, password=password) as client:
            await client.create_topic("orders", partitions=1)
        for user, wrong in ((made.token_id, "ann-pw"), ("ann", password)):
            with pytest.raises(kledger.NotAllowed):
                async with kledger.connect(url, username=user, password=wrong):
                    pass


async def test_tokens_that_have_expired_are_removed_at_the_interval() -> None:
    clock = ManualClock(1_700_000_000_000)
    settings = SETTINGS | {
        "delegation.token.expiry.time.ms": 1_000,
        "delegation.token.expiry.check.interval.ms": 5_000,
    }
    async with (
        Server(settings=settings, clock=clock) as server,
        handshaken(server, "PLAIN") as ann,
    ):
        plain = SaslAuthenticateRequest(auth_bytes=b"\0ann\0ann-pw")
        assert 0 == (await ann.ask(plain, 2)).error_code
        await ann.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        everything = DescribeDelegationTokenRequest(owners=None)
        clock.advance(4_000)
        assert 1 == len((await ann.ask(everything, 3)).tokens), "expired, and not removed yet"
        clock.advance(1_000)
        while (await ann.ask(everything, 3)).tokens:
            pass
