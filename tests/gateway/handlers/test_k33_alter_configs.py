"""AlterConfigs; row 28 of docs/SCENARIOS.md, and what Apache Kafka 4.3 answers."""

import pytest

from kledger.gateway.wire.messages.k33_alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)
from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import RunningGateway, running_gateway

UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_CONFIG, INVALID_REQUEST, STORAGE = 3, 17, 40, 42, 56
TOPIC, METRICS, GROUP = 2, 16, 32
BEFORE = {"retention.ms": "1", "retention.bytes": "2"}


def of(name: str, *settings: tuple[str, str | None], kind: int = TOPIC) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=name, value=value) for name, value in settings],
    )


async def alter(
    gateway: RunningGateway,
    *resources: AlterConfigsResource,
    version: int = 2,
    validate_only: bool = False,
) -> list[AlterConfigsResourceResponse]:
    async with gateway.client() as client:
        request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
        outcomes: list[AlterConfigsResourceResponse] = (
            await client.ask(request, version)
        ).responses
        return outcomes


@pytest.mark.parametrize("version", range(3))
async def test_what_is_not_named_goes_back_to_its_default(version: int) -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t", configs=BEFORE)
        (outcome,) = await alter(
            gateway, of("t", ("retention.ms", "7"), ("flush.ms", "9")), version=version
        )
        assert (
            AlterConfigsResourceResponse(error_message=None, resource_type=TOPIC, resource_name="t")
            == outcome
        )
        assert {"retention.ms": "7", "flush.ms": "9"} == topic.configs
        assert (7, -1) == (topic.config.retention_ms, topic.config.retention_bytes)
        await alter(gateway, of("t"), version=version)
        assert {} == topic.configs


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (of("t", ("nope", "1")), INVALID_CONFIG),
        (of("t", ("retention.ms", "soon")), INVALID_CONFIG),
        (of("t", ("retention.ms", "7"), ("nope", "1")), INVALID_CONFIG),
        (of("t", ("retention.ms", None)), INVALID_REQUEST),
        (of("t", ("retention.ms", "7"), ("retention.ms", "8")), INVALID_REQUEST),
        (of("nowhere", ("retention.ms", "7")), UNKNOWN_TOPIC),
        (of("a b"), INVALID_TOPIC),
        (of(""), INVALID_REQUEST),
        (of("1", ("num.partitions", "7"), kind=4), INVALID_REQUEST),
        (of("", ("num.partitions", "7"), kind=4), INVALID_REQUEST),
        (of("7", kind=4), INVALID_REQUEST),
        (of("1", ("gateway", "INFO"), kind=8), INVALID_REQUEST),
        (of("x", kind=99), INVALID_REQUEST),
    ],
)
async def test_row_28_wrong_resource_is_refused_and_its_neighbour_altered(
    asked: AlterConfigsResource, code: int, *, validate_only: bool
) -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t", configs=BEFORE)
        neighbour = await gateway.create_topic("neighbour", configs=BEFORE)
        refused, altered = await alter(
            gateway, asked, of("neighbour", ("flush.ms", "9")), validate_only=validate_only
        )
        assert (code, asked.resource_type, asked.resource_name) == (
            refused.error_code,
            refused.resource_type,
            refused.resource_name,
        )
        assert refused.error_message
        assert (0, None) == (altered.error_code, altered.error_message)
        assert BEFORE == topic.configs
        assert neighbour.configs == (BEFORE if validate_only else {"flush.ms": "9"})


async def test_row_28_resource_that_stands_twice_is_refused_both_times() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t", configs=BEFORE)
        outcomes = await alter(gateway, of("t", ("flush.ms", "1")), of("t", ("flush.ms", "2")))
        assert [INVALID_REQUEST] * 2 == [each.error_code for each in outcomes]
        assert BEFORE == topic.configs


async def test_changes_survive_a_restart() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway:
        await gateway.create_topic("t", configs=BEFORE)
        await alter(gateway, of("t", ("flush.ms", "9")))
    async with running_gateway(engine=engine) as gateway:
        topic = gateway.services.registry.get("t")
        assert topic is not None
        assert {"flush.ms": "9"} == topic.configs


async def test_storage_that_fails_changes_nothing() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t", configs=BEFORE)
        gateway.engine.fail_next("commit")
        (failed,) = await alter(gateway, of("t", ("flush.ms", "9")))
        assert STORAGE == failed.error_code
        assert (BEFORE, 1) == (topic.configs, topic.config.retention_ms)


async def test_settings_of_this_node_are_replaced() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        for name in ("log.retention.ms", "max.connections"):
            request = AlterConfigsRequest(resources=[of("1", (name, "7"), kind=4)])
            (outcome,) = (await client.ask(request, 2)).responses
            assert 0 == outcome.error_code
            assert {name: "7"} == gateway.services.broker_settings.of("1")


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        (GROUP, {"consumer.session.timeout.ms": "50000"}, {"share.isolation.level": "x"}),
        (METRICS, {"metrics": "a"}, {"interval.ms": "99"}),
    ],
)
async def test_settings_of_groups_and_subscriptions_are_replaced(
    kind: int, first: dict[str, str], second: dict[str, str]
) -> None:
    async with running_gateway() as gateway:
        services = gateway.services
        settings = services.group_settings if kind == GROUP else services.client_metrics
        (outcome,) = await alter(gateway, of("x", *first.items(), kind=kind))
        assert (0, first) == (outcome.error_code, settings.of("x"))
        (outcome,) = await alter(gateway, of("x", *second.items(), kind=kind))
        assert outcome.error_code in {INVALID_CONFIG, INVALID_REQUEST}
        assert first == settings.of("x")
        (outcome,) = await alter(gateway, of("x", kind=kind))
        assert (0, {}) == (outcome.error_code, settings.of("x"))
