"""DescribeAcls, CreateAcls and DeleteAcls with an authorizer."""

import asyncio
import logging
from typing import Any

import pytest

from compat_tests.differential.named_requests import Names, named_request
from compat_tests.differential.side import error_codes
from kledger.gateway.served_apis import HANDLERS_BY_KEY
from kledger.gateway.wire.messages.k20_delete_topics import DeleteTopicState
from kledger.gateway.wire.messages.k29_describe_acls import DescribeAclsRequest
from kledger.gateway.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest
from kledger.gateway.wire.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.gateway.authorized import authorizing_gateway, client_of
from tests.gateway.running import running_gateway, until
from tests.gateway.wire_client import WireClient
from tests.security.acl_words import allow, deny

INVALID_REQUEST, UNKNOWN_SERVER_ERROR, STORAGE_ERROR = 42, -1, 56
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
ALL_RULES: dict[str, Any] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


def creation(**changes: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**fields | changes)


async def described(client: WireClient, version: int = 3, **changes: Any) -> list[tuple[Any, ...]]:
    answer = await client.ask(DescribeAclsRequest(**ALL_RULES | changes), version)
    assert (0, None) == (answer.error_code, answer.error_message)
    return [
        (
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            [(one.principal, one.host, one.operation, one.permission_type) for one in each.acls],
        )
        for each in answer.resources
    ]


async def created(client: WireClient, *creations: AclCreation, version: int = 3) -> list[int]:
    answer = await client.ask(CreateAclsRequest(creations=list(creations)), version)
    return [each.error_code for each in answer.results]


@VERSIONS
async def test_rules_are_created_described_and_deleted(version: int) -> None:
    async with authorizing_gateway() as gateway, client_of(gateway, "root") as client:
        rules = creation(), creation(operation=4), creation(resource_pattern_type=PREFIXED)
        assert [0, 0, 0] == await created(client, *rules, version=version)
        assert [0] == await created(client, creation(), version=version)
        alice = [("User:alice", "*", 3, 3)]
        assert [
            (2, "t", LITERAL, [*alice, ("User:alice", "*", 4, 3)]),
            (2, "t", PREFIXED, alice),
        ] == await described(client, version)
        filters = [
            DeleteAclsFilter(**ALL_RULES | {"pattern_type_filter": LITERAL, "operation": 3}),
            DeleteAclsFilter(**ALL_RULES | {"resource_name_filter": "nothing"}),
            DeleteAclsFilter(**ALL_RULES | {"operation": 3}),
        ]
        answer = await client.ask(DeleteAclsRequest(filters=filters), version)
        assert [1, 0, 2] == [len(each.matching_acls) for each in answer.filter_results]
        found = answer.filter_results[0].matching_acls[0]
        assert (2, "t", LITERAL, *alice[0]) == (
            found.resource_type,
            found.resource_name,
            found.pattern_type,
            found.principal,
            found.host,
            found.operation,
            found.permission_type,
        )
        assert [(2, "t", LITERAL, [("User:alice", "*", 4, 3)])] == await described(client, version)


async def test_match_finds_what_applies_to_a_name() -> None:
    rules = [allow("READ", "TOPIC:orders"), deny("READ", "TOPIC:ord..."), allow("READ", "TOPIC:*")]
    async with (
        authorizing_gateway([*rules, allow("READ", "TOPIC:o")]) as gateway,
        client_of(gateway, "root") as client,
    ):
        found = await described(client, resource_name_filter="orders", pattern_type_filter=MATCH)
        assert ["orders", "ord", "*"] == [each[1] for each in found]


async def test_invalid_rules_leave_the_others() -> None:
    async with authorizing_gateway() as gateway, client_of(gateway, "root") as client:
        codes = await created(
            client,
            creation(resource_type=4),
            creation(resource_name=""),
            creation(principal="alice"),
            creation(),
        )
        assert [INVALID_REQUEST, INVALID_REQUEST, INVALID_REQUEST, 0] == codes
        assert 1 == len(await described(client))


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": ANY},
        {"resource_pattern_type": ANY},
        {"resource_pattern_type": MATCH},
        {"operation": ANY},
        {"permission_type": ANY},
    ],
)
async def test_values_of_filters_refuse_all_rules(changes: dict[str, int]) -> None:
    async with authorizing_gateway() as gateway, client_of(gateway, "root") as client:
        codes = await created(client, creation(), creation(**changes))
        assert [UNKNOWN_SERVER_ERROR, UNKNOWN_SERVER_ERROR] == codes
        assert [] == await described(client)


@pytest.mark.parametrize(
    "request_",
    [
        CreateAclsRequest(creations=[creation(resource_type=0)]),
        CreateAclsRequest(creations=[creation(resource_pattern_type=5)]),
        CreateAclsRequest(creations=[creation(operation=16)]),
        CreateAclsRequest(creations=[creation(permission_type=-1)]),
        DescribeAclsRequest(**ALL_RULES | {"operation": 0}),
        DeleteAclsRequest(filters=[DeleteAclsFilter(**ALL_RULES | {"resource_type_filter": 8})]),
    ],
)
async def test_values_that_do_not_exist_end_the_connection(request_: Any) -> None:
    async with authorizing_gateway() as gateway, client_of(gateway, "root") as client:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.ask(request_, 3)
        await until(lambda: gateway.server.connection_count == 0)


async def test_failed_write_is_answered_and_changes_nothing() -> None:
    async with authorizing_gateway() as gateway, client_of(gateway, "root") as client:
        gateway.engine.fail_next("commit")
        assert [INVALID_REQUEST, STORAGE_ERROR] == await created(
            client, creation(principal="x"), creation()
        )
        assert [] == await described(client)


async def test_changes_and_refusals_leave_audit_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kledger.audit")
    async with authorizing_gateway() as gateway:
        async with client_of(gateway, "root") as client:
            await created(client, creation(principal="User:a\nb"))
            await client.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**ALL_RULES)]), 3)
        async with client_of(gateway, "mallory") as client:
            await created(client, creation())
    lines = [each.getMessage() for each in caplog.records if each.name == "kledger.audit"]
    start = ['created rule principal="User:root" address="127.0.0.1"', "deleted rule principal="]
    assert start == [line[: len(part)] for line, part in zip(lines, start, strict=False)]
    assert r'"User:a\nb"' in lines[0]
    assert [
        (
            'refused principal="User:mallory" address="127.0.0.1" operation=ALTER '
            'resource=CLUSTER:"kafka-cluster"'
        )
    ] == lines[2:]


async def test_changes_of_topics_and_settings_leave_audit_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Values of settings are left out: one may be a secret."""
    caplog.set_level(logging.INFO, "kledger.audit")
    setting = {"name": "retention.ms", "value": "60000"}
    quota = {"entity_type": "user", "entity_name": "bob", "key": "producer_byte_rate", "value": 9e9}
    async with authorizing_gateway() as gateway, client_of(gateway, "root") as client:
        names = Names("t")
        for key, changes in (
            (3, {"allow_auto_topic_creation": True}),
            (19, {"name": "u", "num_partitions": 2, "configs": [], "assignments": []}),
            (37, {"name": "u", "count": 3, "assignments": None}),
            (44, {"resource_type": 2, "resource_name": "u", **setting}),
            (33, {"resource_type": 2, "resource_name": "u", **setting}),
            (49, quota),
            (20, {"topics": [DeleteTopicState(name="u")]}),
        ):
            version = HANDLERS_BY_KEY[key].max_version
            request = named_request(key, version, names, {"validate_only": False, **changes})
            assert not any(error_codes(await client.ask(request, version))), key
    by = 'principal="User:root" address="127.0.0.1"'
    assert [
        f'created topic {by} topic="t" partitions=1',
        f'created topic {by} topic="u" partitions=2',
        f'created partitions {by} topic="u" partitions=3',
        f'altered configuration {by} resource="TOPIC:u" settings="retention.ms"',
        f'altered configuration {by} resource="TOPIC:u" settings="retention.ms"',
        f'altered quotas {by} entity="user=bob" quotas="producer_byte_rate"',
        f'deleted topic {by} topic="u"',
    ] == [each.getMessage() for each in caplog.records if each.name == "kledger.audit"]


async def test_server_without_users_and_rules_leaves_no_audit_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kledger.audit")
    async with running_gateway() as gateway, gateway.client() as client:
        await client.ask(named_request(20, 6, Names("t")), 6)
        await client.ask(
            named_request(19, 7, Names("t"), {"validate_only": False, "num_partitions": 1}), 7
        )
    assert [] == [each for each in caplog.records if each.name == "kledger.audit"]
