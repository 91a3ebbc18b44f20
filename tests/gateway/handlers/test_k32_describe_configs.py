"""DescribeConfigs; row 33 of docs/SCENARIOS.md, and what Apache Kafka 4.3 answers."""

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.group_keys import GROUP_KEYS
from kledger.gateway.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from kledger.topics import CONFIG_KEYS
from tests.gateway.running import RunningGateway, running_gateway

UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_REQUEST = 3, 17, 42
TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
SHOWN = {name for name, key in CONFIG_KEYS.items() if not key.is_internal}


def of(
    name: str = "t", *keys: str, kind: int = TOPIC, every: bool = False
) -> DescribeConfigsResource:
    """Ask for some settings; `every` stands for the null list."""
    return DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None if every else list(keys)
    )


async def describe(
    gateway: RunningGateway, *resources: DescribeConfigsResource, version: int = 4, **fields: bool
) -> list[DescribeConfigsResult]:
    async with gateway.client() as client:
        request = DescribeConfigsRequest(resources=list(resources), **fields)
        results: list[DescribeConfigsResult] = (await client.ask(request, version)).results
        return results


def by_name(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert (0, "") == (result.error_code, result.error_message)
    found = {entry.name: entry for entry in result.configs}
    assert len(found) == len(result.configs)
    return found


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (of(every=True), SHOWN),
        (of(), SHOWN),
        (of("t", "retention.ms"), {"retention.ms"}),
        (of("t", "retention.ms", "nope", "retention.ms"), {"retention.ms"}),
        (of("t", "nope"), set()),
        (of("t", "internal.segment.bytes"), set()),
    ],
)
async def test_row_33_which_settings_of_a_topic(
    asked: DescribeConfigsResource, names: set[str], version: int
) -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t", configs={"retention.ms": "5"})
        (result,) = await describe(gateway, asked, version=version)
        assert (TOPIC, "t") == (result.resource_type, result.resource_name)
        entries = by_name(result)
        assert names == set(entries)
        if "retention.ms" in names:
            entry = entries["retention.ms"]
            assert ("5", 1, False, False) == (
                entry.value,
                entry.config_source,
                entry.read_only,
                entry.is_sensitive,
            )
            assert (5 if version >= 3 else 0) == entry.config_type


async def test_row_33_synonyms_and_documentation_only_when_asked_for() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t", configs={"max.message.bytes": "5"})
        asked = of("t", "max.message.bytes")
        (entry,) = (await describe(gateway, asked))[0].configs
        assert ([], None) == (entry.synonyms, entry.documentation)
        (entry,) = (await describe(gateway, asked, include_documentation=True))[0].configs
        assert entry.documentation
        assert [] == entry.synonyms
        (entry,) = (await describe(gateway, asked, include_synonyms=True))[0].configs
        assert [
            ("max.message.bytes", "5", 1),
            ("message.max.bytes", "1048588", 5),
        ] == [(each.name, each.value, each.source) for each in entry.synonyms]
        assert entry.documentation is None


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (of("nowhere"), UNKNOWN_TOPIC),
        (of("a b"), INVALID_TOPIC),
        (of(""), INVALID_TOPIC),
        (of("7", kind=BROKER), INVALID_REQUEST),
        (of("one", kind=BROKER), INVALID_REQUEST),
        (of("1", kind=8), INVALID_REQUEST),
        (of("", kind=METRICS), INVALID_REQUEST),
        (of("", kind=GROUP), INVALID_REQUEST),
        (of("x", kind=0), INVALID_REQUEST),
        (of("x", kind=99), INVALID_REQUEST),
        (of("x", kind=-3), INVALID_REQUEST),
    ],
)
async def test_row_28_33_wrong_resource_is_refused_and_its_neighbours_shown(
    asked: DescribeConfigsResource, code: int
) -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        wanted = of("t", "retention.ms")
        before, refused, after = await describe(gateway, wanted, asked, wanted)
        assert (code, asked.resource_type, asked.resource_name, []) == (
            refused.error_code,
            refused.resource_type,
            refused.resource_name,
            refused.configs,
        )
        assert refused.error_message
        assert {"retention.ms"} == set(by_name(before)) == set(by_name(after))


async def test_row_33_our_broker_shows_what_it_was_started_with() -> None:
    async with running_gateway(GatewayConfig(num_partitions=3)) as gateway:
        everything, one = await describe(
            gateway,
            of("1", kind=BROKER, every=True),
            of("1", "num.partitions", kind=BROKER),
            include_synonyms=True,
        )
        (entry,) = one.configs
        assert ("num.partitions", "3", 4, True) == (
            entry.name,
            entry.value,
            entry.config_source,
            entry.read_only,
        )
        assert [4, 5] == [each.source for each in entry.synonyms]
        assert by_name(everything)["num.partitions"] == entry
        assert all(each.synonyms or each.value is None for each in everything.configs)


async def test_row_33_of_all_brokers_only_what_is_set_is_shown() -> None:
    async with running_gateway() as gateway:
        (result,) = await describe(gateway, of("", kind=BROKER))
        assert {"min.insync.replicas"} == set(by_name(result))


async def test_altered_settings_stand_before_what_was_given() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        for name, value in (("", "400"), ("1", "500")):
            await gateway.services.broker_settings.alter(
                name, {"message.max.bytes": value}, replace=False, validate_only=False
            )
        node, every_node, topic = await describe(
            gateway,
            of("1", "message.max.bytes", kind=BROKER),
            of("", "message.max.bytes", kind=BROKER),
            of("t", "max.message.bytes"),
            include_synonyms=True,
        )
        assert [("500", 2, False), ("400", 3, False), ("500", 2, False)] == [
            (entry.value, entry.config_source, entry.read_only)
            for result in (node, every_node, topic)
            for entry in result.configs
        ]
        places = [(each.value, each.source) for each in node.configs[0].synonyms]
        assert [("500", 2), ("400", 3), ("1048588", 5)] == places
        assert [("400", 3)] == [(s.value, s.source) for s in every_node.configs[0].synonyms]


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize(
    ("kind", "keys"), [(GROUP, set(GROUP_KEYS)), (METRICS, {"interval.ms", "match", "metrics"})]
)
async def test_groups_and_subscriptions_have_defaults_whether_they_exist_or_not(
    kind: int, keys: set[str], version: int
) -> None:
    async with running_gateway() as gateway:
        everything, one = await describe(
            gateway,
            of("x", kind=kind, every=True),
            of("x", min(keys), "nope", kind=kind),
            version=version,
        )
        assert keys == set(by_name(everything))
        assert {(5, False)} == {(each.config_source, each.read_only) for each in everything.configs}
        assert {min(keys)} == set(by_name(one))


async def test_own_settings_of_groups_stand_before_those_of_all() -> None:
    name = "consumer.session.timeout.ms"
    config = GatewayConfig(group_consumer_session_timeout_ms=50_000)
    async with running_gateway(config) as gateway:
        (before,) = await describe(gateway, of("g", name, kind=GROUP))
        assert [("50000", 4, 3)] == [
            (each.value, each.config_source, each.config_type) for each in before.configs
        ]
        await gateway.services.group_settings.alter(
            "g", {name: "60000"}, replace=False, validate_only=False
        )
        (after,) = await describe(gateway, of("g", name, kind=GROUP), include_synonyms=True)
        (entry,) = after.configs
        assert ("60000", 8) == (entry.value, entry.config_source)
        assert [
            (name, "60000", 8),
            (f"group.{name}", "50000", 4),
            (f"group.{name}", "45000", 5),
        ] == [(each.name, each.value, each.source) for each in entry.synonyms]


async def test_settings_of_subscriptions_have_one_source() -> None:
    async with running_gateway() as gateway:
        await gateway.services.client_metrics.alter(
            "m", {"metrics": "a"}, replace=False, validate_only=False
        )
        (result,) = await describe(gateway, of("m", kind=METRICS), include_synonyms=True)
        entries = by_name(result)
        assert {"interval.ms": ("300000", 5, 3), "match": ("", 5, 7), "metrics": ("a", 7, 7)} == {
            name: (each.value, each.config_source, each.config_type)
            for name, each in entries.items()
        }
        assert [] == entries["match"].synonyms
        assert [("metrics", "a", 7)] == [
            (each.name, each.value, each.source) for each in entries["metrics"].synonyms
        ]
