"""IncrementalAlterConfigs; row 28 of docs/SCENARIOS.md, and what Apache Kafka 4.3 answers."""

import pytest

from kledger.gateway.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)
from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import RunningGateway, running_gateway, until

UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_CONFIG, INVALID_REQUEST, STORAGE = 3, 17, 40, 42, 56
TOPIC, METRICS, GROUP = 2, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
BEFORE = {"retention.ms": "1", "cleanup.policy": "delete"}
Change = tuple[str, int, str | None]


def of(name: str, *changes: Change, kind: int = TOPIC) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in changes
        ],
    )


def request(
    *resources: AlterConfigsResource, validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)


async def alter(
    gateway: RunningGateway,
    *resources: AlterConfigsResource,
    version: int = 1,
    validate_only: bool = False,
) -> list[AlterConfigsResourceResponse]:
    async with gateway.client() as client:
        response = await client.ask(request(*resources, validate_only=validate_only), version)
        outcomes: list[AlterConfigsResourceResponse] = response.responses
        return outcomes


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ([], BEFORE),
        ([("flush.ms", SET, "9")], BEFORE | {"flush.ms": "9"}),
        ([("retention.ms", SET, "9")], BEFORE | {"retention.ms": "9"}),
        ([("retention.ms", DELETE, None)], {"cleanup.policy": "delete"}),
        ([("retention.ms", DELETE, "ignored")], {"cleanup.policy": "delete"}),
        ([("flush.ms", DELETE, None), ("nope", DELETE, None)], BEFORE),
        ([("cleanup.policy", APPEND, "compact")], BEFORE | {"cleanup.policy": "delete,compact"}),
        ([("cleanup.policy", APPEND, " delete ")], BEFORE),
        ([("cleanup.policy", SUBTRACT, "compact,foo")], BEFORE),
        ([("cleanup.policy", SUBTRACT, "delete")], BEFORE | {"cleanup.policy": ""}),
        (
            [("retention.ms", DELETE, None), ("cleanup.policy", SET, "compact")],
            {"cleanup.policy": "compact"},
        ),
    ],
)
async def test_operations_change_what_they_name_and_nothing_else(
    changes: list[Change], after: dict[str, str], version: int
) -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t", configs=BEFORE)
        (outcome,) = await alter(gateway, of("t", *changes), version=version)
        assert (
            AlterConfigsResourceResponse(error_message=None, resource_type=TOPIC, resource_name="t")
            == outcome
        )
        assert after == topic.configs


async def test_lists_start_from_their_default() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t")
        for operation, element, value in (
            (APPEND, "compact", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "compact", ""),
            (APPEND, "delete", "delete"),
        ):
            await alter(gateway, of("t", ("cleanup.policy", operation, element)))
            assert {"cleanup.policy": value} == topic.configs


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (of("t", ("nope", SET, "1")), INVALID_CONFIG),
        (of("t", ("retention.ms", SET, "soon")), INVALID_CONFIG),
        (of("t", ("compaction.strategy", SET, "os:path")), INVALID_CONFIG),
        (of("t", ("retention.ms", SET, "7"), ("nope", SET, "1")), INVALID_CONFIG),
        (of("t", ("retention.ms", APPEND, "1")), INVALID_CONFIG),
        (of("t", ("compression.type", SUBTRACT, "lz4")), INVALID_CONFIG),
        (of("t", ("nope", APPEND, "1")), INVALID_CONFIG),
        (of("t", ("cleanup.policy", APPEND, "melt")), INVALID_CONFIG),
        (of("t", ("cleanup.policy", APPEND, "")), INVALID_CONFIG),
        (of("t", ("retention.ms", SET, None)), INVALID_REQUEST),
        (of("t", ("cleanup.policy", APPEND, None)), INVALID_REQUEST),
        (of("t", ("cleanup.policy", SUBTRACT, None)), INVALID_REQUEST),
        (of("t", ("retention.ms", 4, "1")), INVALID_REQUEST),
        (of("t", ("retention.ms", -1, "1")), INVALID_REQUEST),
        (of("t", ("retention.ms", SET, "7"), ("retention.ms", DELETE, None)), INVALID_REQUEST),
        (of("nowhere", ("retention.ms", SET, "7")), UNKNOWN_TOPIC),
        (of("a b", ("retention.ms", SET, "7")), INVALID_TOPIC),
        (of("", ("retention.ms", SET, "7")), INVALID_REQUEST),
        (of("1", ("num.partitions", SET, "7"), kind=4), INVALID_REQUEST),
        (of("", ("num.partitions", SET, "7"), kind=4), INVALID_REQUEST),
        (of("7", ("log.retention.ms", SET, "7"), kind=4), INVALID_REQUEST),
        (of("1", ("gateway", SET, "INFO"), kind=8), INVALID_REQUEST),
        (of("x", ("interval.ms", SET, "1"), kind=16), INVALID_REQUEST),
        (of("x", ("metrics", APPEND, "a"), kind=METRICS), INVALID_CONFIG),
        (of("x", ("nope", SET, "1"), kind=METRICS), INVALID_REQUEST),
        (of("", ("metrics", SET, "a"), kind=METRICS), INVALID_REQUEST),
        (of("g", ("consumer.session.timeout.ms", SET, "1"), kind=GROUP), INVALID_CONFIG),
        (of("g", ("consumer.session.timeout.ms", SUBTRACT, "1"), kind=GROUP), INVALID_CONFIG),
        (of("g", ("consumer.session.timeout.ms", SET, None), kind=GROUP), INVALID_REQUEST),
        (of("g", ("nope", SET, "1"), kind=GROUP), INVALID_CONFIG),
        (of("", ("consumer.session.timeout.ms", SET, "50000"), kind=GROUP), INVALID_REQUEST),
        (of("x", kind=99), INVALID_REQUEST),
    ],
)
async def test_row_28_wrong_resource_is_refused_and_its_neighbour_altered(
    asked: AlterConfigsResource, code: int, *, validate_only: bool
) -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t", configs=BEFORE)
        neighbour = await gateway.create_topic("neighbour")
        refused, altered = await alter(
            gateway, asked, of("neighbour", ("flush.ms", SET, "9")), validate_only=validate_only
        )
        assert (code, asked.resource_type, asked.resource_name) == (
            refused.error_code,
            refused.resource_type,
            refused.resource_name,
        )
        assert refused.error_message
        assert (0, None) == (altered.error_code, altered.error_message)
        assert BEFORE == topic.configs
        assert neighbour.configs == ({} if validate_only else {"flush.ms": "9"})


async def test_row_28_resource_that_stands_twice_is_refused_both_times() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t")
        change = of("t", ("flush.ms", SET, "1"))
        outcomes = await alter(gateway, change, change)
        assert [INVALID_REQUEST] * 2 == [each.error_code for each in outcomes]
        assert {} == topic.configs


async def test_two_requests_at_once_lose_nothing_of_each_other() -> None:
    """While storage holds the first, the second reads; neither may work from what was before."""
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t", configs={"cleanup.policy": ""})
        async with gateway.client() as one, gateway.client() as two:
            hold = gateway.engine.hold_next("commit")
            for client, policy, name in (
                (one, "compact", "flush.ms"),
                (two, "delete", "retention.ms"),
            ):
                change = of("t", ("cleanup.policy", APPEND, policy), (name, SET, "9"))
                client.send(request(change), 1)
            await until(
                lambda: sum(each.state.is_exclusive for each in gateway.server.connections) == 2
            )
            hold.release()
            for client in (one, two):
                assert 0 == (await client.receive()).responses[0].error_code
        assert {"compact", "delete"} == set(topic.configs["cleanup.policy"].split(","))
        assert ("9", "9") == (topic.configs["flush.ms"], topic.configs["retention.ms"])


async def test_changes_survive_a_restart() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway:
        await gateway.create_topic("t", configs=BEFORE)
        await alter(gateway, of("t", ("flush.ms", SET, "9"), ("retention.ms", DELETE, None)))
    async with running_gateway(engine=engine) as gateway:
        topic = gateway.services.registry.get("t")
        assert topic is not None
        assert {"cleanup.policy": "delete", "flush.ms": "9"} == topic.configs


async def test_storage_that_fails_changes_nothing() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t", configs=BEFORE)
        gateway.engine.fail_next("commit")
        (failed,) = await alter(gateway, of("t", ("retention.ms", SET, "9")))
        assert STORAGE == failed.error_code
        assert (BEFORE, 1) == (topic.configs, topic.config.retention_ms)


async def test_settings_of_this_node_and_of_all_nodes_can_be_altered() -> None:
    async with running_gateway() as gateway:
        policy, size = "log.cleanup.policy", "message.max.bytes"
        outcomes = await alter(
            gateway,
            of("1", (policy, APPEND, "compact"), (size, SET, "500"), kind=4),
            of("", (size, SET, "400"), ("nope", DELETE, None), kind=4),
        )
        assert [0, 0] == [outcome.error_code for outcome in outcomes]
        settings = gateway.services.broker_settings
        assert {policy: "delete,compact", size: "500"} == settings.of("1")
        assert {size: "400", "min.insync.replicas": "1"} == settings.of("")
        (outcome,) = await alter(gateway, of("1", (size, APPEND, "1"), kind=4))
        assert INVALID_CONFIG == outcome.error_code


@pytest.mark.parametrize("version", range(2))
async def test_settings_of_groups_and_subscriptions_can_be_altered(version: int) -> None:
    async with running_gateway() as gateway:
        services, timeout = gateway.services, "consumer.session.timeout.ms"
        for changes, of_group, of_metrics in (
            ((SET, "50000", "a,b"), {timeout: "50000"}, {"metrics": "a,b"}),
            ((DELETE, None, None), {}, {}),
        ):
            operation, number, names = changes
            outcomes = await alter(
                gateway,
                of("x", (timeout, operation, number), ("nope", DELETE, None), kind=GROUP),
                of("x", ("metrics", operation, names), ("nope", DELETE, None), kind=METRICS),
                version=version,
            )
            assert [0, 0] == [outcome.error_code for outcome in outcomes]
            assert of_group == services.group_settings.of("x")
            assert of_metrics == services.client_metrics.of("x")
