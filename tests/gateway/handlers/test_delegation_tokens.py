"""Keys 38-41: delegation tokens over the wire, as Apache Kafka 4.3 answers (KIP-48, KIP-373)."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsRequest
from kledger.gateway.wire.messages.k38_create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from kledger.gateway.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest
from kledger.gateway.wire.messages.k40_expire_delegation_token import ExpireDelegationTokenRequest
from kledger.gateway.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kledger.security.acl_state import (
    ANY_HOST,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kledger.security.authorizer import STANDARD_AUTHORIZER
from kledger.security.principal import Principal
from kledger.security.secret_text import SecretText
from tests.gateway.running import START_MS, RunningGateway, running_gateway
from tests.gateway.wire_client import WireClient

POLICY_VIOLATION, DISABLED, NOT_FOUND, OWNER_MISMATCH = 44, 61, 62, 63
NOT_ALLOWED, NOT_AUTHORIZED, EXPIRED, INVALID_TYPE = 64, 65, 66, 67
REQUESTS = {
    "k38_create_delegation_token": range(1, 4),
    "k39_renew_delegation_token": range(1, 3),
    "k40_expire_delegation_token": range(1, 3),
    "k41_describe_delegation_token": range(1, 4),
}
EVERY_REQUEST = [(stem, version) for stem, versions in REQUESTS.items() for version in versions]


@asynccontextmanager
async def tokens_gateway(
    secret: str = "s3cret", *, has_rules: bool = False
) -> AsyncIterator[RunningGateway]:
    config = GatewayConfig(
        authorizer_class_name=STANDARD_AUTHORIZER if has_rules else "",
        group_initial_rebalance_delay_ms=0,
        delegation_token_secret_key=SecretText(secret),
        delegation_token_max_lifetime_ms=1_000,
        delegation_token_expiry_time_ms=100,
    )
    async with running_gateway(config) as gateway:
        yield gateway


@asynccontextmanager
async def client_of(
    gateway: RunningGateway, name: str = "ann", *, is_token: bool = False
) -> AsyncIterator[WireClient]:
    """A client whose connection has authenticated."""
    before = set(gateway.server.connections)
    async with gateway.client() as client:
        await client.ask(ApiVersionsRequest(), 0)
        (connection,) = set(gateway.server.connections) - before
        connection.peer.principal = Principal(name)
        connection.peer.is_token = is_token
        yield client


async def allow(
    gateway: RunningGateway, user: str, operation: Operation, kind: ResourceType, name: str
) -> None:
    assert gateway.services.authorizer is not None
    pattern = ResourcePattern(kind, PatternType.LITERAL, name)
    rule = AclRule(pattern, f"User:{user}", ANY_HOST, operation, Permission.ALLOW)
    await gateway.services.authorizer.create([rule])


def create(*renewers: str, lifetime_ms: int = -1, **fields: Any) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        renewers=[
            CreatableRenewers(principal_type="User", principal_name=each) for each in renewers
        ],
        max_lifetime_ms=lifetime_ms,
        **fields,
    )


async def ids_seen(client: WireClient, owners: list[str] | None = None) -> list[str]:
    named = None
    if owners is not None:
        named = [
            DescribeDelegationTokenOwner(principal_type="User", principal_name=each)
            for each in owners
        ]
    answer = await client.ask(DescribeDelegationTokenRequest(owners=named), 3)
    assert 0 == answer.error_code
    return [each.token_id for each in answer.tokens]


@pytest.mark.parametrize(("stem", "version"), EVERY_REQUEST)
async def test_clients_without_a_login_or_with_a_token_are_refused(stem: str, version: int) -> None:
    request = import_module(f"kledger.gateway.wire.messages.{stem}").REQUEST
    async with tokens_gateway() as gateway:
        async with gateway.client() as client:
            assert NOT_ALLOWED == (await client.ask(request(), version)).error_code
        async with client_of(gateway, is_token=True) as client:
            assert NOT_ALLOWED == (await client.ask(request(), version)).error_code


@pytest.mark.parametrize(("stem", "version"), EVERY_REQUEST)
async def test_without_a_secret_tokens_are_disabled(stem: str, version: int) -> None:
    request = import_module(f"kledger.gateway.wire.messages.{stem}").REQUEST
    async with tokens_gateway("") as gateway, client_of(gateway) as client:
        assert DISABLED == (await client.ask(request(), version)).error_code


async def test_a_refused_creation_names_owner_and_requester() -> None:
    request = create(owner_principal_type="User", owner_principal_name="bob")
    async with tokens_gateway(has_rules=True) as gateway, client_of(gateway) as client:
        answer = await client.ask(request, 3)
        assert (NOT_AUTHORIZED, "bob", "ann") == (
            answer.error_code, answer.principal_name, answer.token_requester_principal_name,
        )  # fmt: skip
        assert (-1, -1, -1, "", b"") == (
            answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms,
            answer.token_id, answer.hmac,
        )  # fmt: skip
        assert [] == await ids_seen(client)


async def test_a_token_is_created_described_renewed_and_expired(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "kledger.audit")
    async with tokens_gateway() as gateway, client_of(gateway) as ann:
        made = await ann.ask(create("bob"), 3)
        assert (0, "ann", "ann", START_MS, START_MS + 100, START_MS + 1_000) == (
            made.error_code, made.principal_name, made.token_requester_principal_name,
            made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms,
        )  # fmt: skip
        (shown,) = (await ann.ask(DescribeDelegationTokenRequest(owners=None), 3)).tokens
        assert (made.token_id, made.hmac, ["bob"]) == (
            shown.token_id, shown.hmac, [each.principal_name for each in shown.renewers],
        )  # fmt: skip
        async with client_of(gateway, "bob") as bob:
            gateway.clock.advance(50)
            renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=70)
            answer = await bob.ask(renewal, 2)
            assert (0, START_MS + 120) == (answer.error_code, answer.expiry_timestamp_ms)
            ending = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=10)
            answer = await bob.ask(ending, 2)
            assert (0, START_MS + 60) == (answer.error_code, answer.expiry_timestamp_ms)
            gateway.clock.advance(11)
            assert EXPIRED == (await bob.ask(renewal, 2)).error_code
            assert EXPIRED == (await ann.ask(ending, 2)).error_code
    lines = [record.getMessage() for record in caplog.records]
    assert ["created", "renewed", "expired"] == [line.split()[0] for line in lines]
    assert all(made.token_id in line for line in lines)
    assert base64.b64encode(made.hmac).decode() not in caplog.text


async def test_only_owner_and_renewers_change_a_token() -> None:
    async with tokens_gateway() as gateway, client_of(gateway) as ann:
        made = await ann.ask(create("bob"), 3)
        async with client_of(gateway, "cyd") as cyd:
            for request in (
                RenewDelegationTokenRequest(hmac=made.hmac),
                ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1),
            ):
                assert OWNER_MISMATCH == (await cyd.ask(request, 2)).error_code
                request.hmac = bytes(64)
                assert NOT_FOUND == (await cyd.ask(request, 2)).error_code
        removal = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        assert 0 == (await ann.ask(removal, 2)).error_code
        assert NOT_FOUND == (await ann.ask(removal, 2)).error_code
        assert [] == await ids_seen(ann)


async def test_clients_see_the_tokens_that_concern_them() -> None:
    async with tokens_gateway(has_rules=True) as gateway, client_of(gateway) as ann:
        of_ann = (await ann.ask(create("bob"), 3)).token_id
        async with client_of(gateway, "cyd") as cyd:
            of_cyd = (await cyd.ask(create(), 3)).token_id
            assert [of_cyd] == await ids_seen(cyd)
            assert [] == await ids_seen(cyd, ["ann", "bob"])
        async with client_of(gateway, "bob") as bob:
            assert [of_ann] == await ids_seen(bob)
            assert [of_ann] == await ids_seen(bob, ["ann", "cyd"])
            assert [of_ann] == await ids_seen(bob, ["bob"])
            assert [] == await ids_seen(bob, ["cyd"])
            assert [] == await ids_seen(bob, [])


async def test_tokens_of_others_need_rights_on_the_user() -> None:
    request = create(owner_principal_type="User", owner_principal_name="bob")
    async with tokens_gateway(has_rules=True) as gateway, client_of(gateway) as ann:
        await allow(gateway, "ann", Operation.CREATE_TOKENS, ResourceType.USER, "User:bob")
        made = await ann.ask(request, 3)
        assert (0, "bob", "ann") == (
            made.error_code, made.principal_name, made.token_requester_principal_name,
        )  # fmt: skip
        renewal = RenewDelegationTokenRequest(hmac=made.hmac)
        assert OWNER_MISMATCH == (await ann.ask(renewal, 2)).error_code
        for reader, right in (
            ("cyd", (Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob")),
            ("dan", (Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, made.token_id)),
        ):
            async with client_of(gateway, reader) as client:
                assert [] == await ids_seen(client)
                await allow(gateway, reader, *right)
                assert [made.token_id] == await ids_seen(client)


async def test_without_an_authorizer_tokens_may_have_any_owner() -> None:
    request = create(owner_principal_type="User", owner_principal_name="bob")
    async with tokens_gateway() as gateway, client_of(gateway) as client:
        assert "bob" == (await client.ask(request, 3)).principal_name


async def test_renewers_are_users_and_have_a_limit() -> None:
    groups = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type="Group", principal_name="g")]
    )
    many = create(*map(str, range(101)))
    async with tokens_gateway() as gateway, client_of(gateway) as client:
        assert INVALID_TYPE == (await client.ask(groups, 1)).error_code
        assert POLICY_VIOLATION == (await client.ask(many, 1)).error_code
        assert [] == await ids_seen(client)


async def test_a_failed_write_is_a_storage_error_and_creates_nothing() -> None:
    async with tokens_gateway() as gateway, client_of(gateway) as client:
        gateway.engine.fail_next("commit")
        answer = await client.ask(create(), 3)
        assert (56, "", b"") == (answer.error_code, answer.token_id, answer.hmac)
        assert [] == await ids_seen(client)
