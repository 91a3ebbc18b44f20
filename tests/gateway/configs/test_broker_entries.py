"""Entries of a broker: every name of Kafka's, with the value that is true of this server."""

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.broker_entries import all_nodes_entries, listener_text, node_entries
from kledger.gateway.configs.broker_keys import KAFKA_KEYS
from kledger.gateway.wire.messages.k32_describe_configs import DescribeConfigsResourceResult
from kledger.topics import TopicDefaults
from tests.gateway.running import RunningGateway, running_gateway

NODE, ALL_NODES, STATIC, DEFAULT = 2, 3, 4, 5
UNKNOWN, BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, PASSWORD = 0, 1, 2, 3, 4, 5, 6, 7, 9


def entries(gateway: RunningGateway) -> dict[str, DescribeConfigsResourceResult]:
    found = list(node_entries(gateway.services.broker_settings))
    by_name = {entry.name: entry for entry in found}
    assert len(found) == len(by_name)
    return by_name


def synonyms(entry: DescribeConfigsResourceResult) -> list[tuple[str | None, int]]:
    return [(each.value, each.source) for each in entry.synonyms]


async def alter(gateway: RunningGateway, name: str, settings: dict[str, str]) -> None:
    await gateway.services.broker_settings.alter(name, settings, replace=False, validate_only=False)


async def test_every_name_is_listed_with_kafkas_type_and_default() -> None:
    async with running_gateway() as gateway:
        found = entries(gateway)
        assert KAFKA_KEYS.keys() <= found.keys()
        cleaner, password = found["log.cleaner.threads"], found["ssl.key.password"]
        assert ("1", INT, DEFAULT, False) == (
            cleaner.value,
            cleaner.config_type,
            cleaner.config_source,
            cleaner.read_only,
        )
        assert (None, PASSWORD, True, []) == (
            password.value,
            password.config_type,
            password.is_sensitive,
            password.synonyms,
        )
        assert SHORT == found["offsets.topic.replication.factor"].config_type
        assert "leader.replication.throttled.rate" not in found


async def test_given_values_precede_the_default() -> None:
    async with running_gateway(GatewayConfig(num_partitions=3)) as gateway:
        found = entries(gateway)
        given, untouched = found["num.partitions"], found["default.replication.factor"]
        assert ("3", STATIC, True) == (given.value, given.config_source, given.read_only)
        assert [("3", STATIC), ("1", DEFAULT)] == synonyms(given)
        assert [("1", DEFAULT)] == synonyms(untouched)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("broker.id", "7", INT),
        ("node.id", "7", INT),
        ("log.dirs", "memory", LIST),
        ("message.max.bytes", "1048588", INT),
        ("connections.max.idle.ms", "600000", LONG),
        ("group.consumer.assignors", "uniform,range", LIST),
        ("auto.create.topics.enable", "true", BOOLEAN),
        ("advertised.host", "127.0.0.1", STRING),
        ("process.roles", "broker,controller", LIST),
        ("log.cleaner.dedupe.buffer.size", "67108864", LONG),
        ("group.coordinator.rebalance.protocols", "classic,consumer", LIST),
        ("producer.id.expiration.ms", "86400000", INT),
        ("log.retention.check.interval.ms", "300000", LONG),
        ("log.retention.ms", None, LONG),
        ("log.retention.hours", "168", INT),
        ("log.cleaner.min.cleanable.ratio", "0.5", DOUBLE),
        ("kledger.retention.waits.for", "subscriptions", LIST),
    ],
)
async def test_values_are_those_of_this_server(name: str, value: str | None, kind: int) -> None:
    async with running_gateway(GatewayConfig(node_id=7)) as gateway:
        entry = entries(gateway)[name]
        assert (value, kind) == (entry.value, entry.config_type)


async def test_listeners_are_those_that_are_bound() -> None:
    async with running_gateway() as gateway:
        found = entries(gateway)
        address = f"PLAINTEXT://127.0.0.1:{gateway.port}"
        assert [(address, STATIC), ("PLAINTEXT://:9092", DEFAULT)] == synonyms(found["listeners"])
        assert [(address, STATIC)] == synonyms(found["advertised.listeners"])


async def test_defaults_of_topics_that_were_given_stand_under_their_broker_names() -> None:
    given = TopicDefaults(configs={"log.retention.hours": "2"}, producer_id_expiration_ms=5)
    async with running_gateway() as gateway:
        gateway.services.broker_settings.static_defaults = given
        found = entries(gateway)
        assert [("2", STATIC), ("168", DEFAULT)] == synonyms(found["log.retention.hours"])
        assert [("5", STATIC), ("86400000", DEFAULT)] == synonyms(
            found["producer.id.expiration.ms"]
        )
        assert "retention.ms" not in found
        assert "leader.replication.throttled.replicas" not in found


async def test_altered_values_come_first_with_their_node() -> None:
    async with running_gateway() as gateway:
        await alter(gateway, "", {"log.cleaner.threads": "2"})
        await alter(gateway, "1", {"log.cleaner.threads": "3"})
        entry = entries(gateway)["log.cleaner.threads"]
        assert [("3", NODE), ("2", ALL_NODES), ("1", DEFAULT)] == synonyms(entry)
        assert ("3", NODE) == (entry.value, entry.config_source)
        shown = {each.name: each for each in all_nodes_entries(gateway.services.broker_settings)}
        assert [("2", ALL_NODES)] == synonyms(shown["log.cleaner.threads"])


async def test_the_value_of_an_unknown_name_is_not_shown() -> None:
    async with running_gateway() as gateway:
        await alter(gateway, "1", {"no.such": "secret"})
        entry = entries(gateway)["no.such"]
        assert (None, UNKNOWN, True, True) == (
            entry.value,
            entry.config_type,
            entry.is_sensitive,
            entry.read_only,
        )
        assert [(None, NODE)] == synonyms(entry)


async def test_a_setting_of_a_listener_is_shown_by_its_whole_name() -> None:
    name = "listener.name.internal.max.connections"
    async with running_gateway() as gateway:
        await alter(gateway, "", {name: "10"})
        entry = entries(gateway)[name]
        assert ("10", INT, ALL_NODES, True) == (
            entry.value,
            entry.config_type,
            entry.config_source,
            entry.read_only,
        )


async def test_min_insync_replicas_is_set_for_all_nodes_from_the_start() -> None:
    async with running_gateway() as gateway:
        entry = entries(gateway)["min.insync.replicas"]
        assert [("1", ALL_NODES), ("1", DEFAULT)] == synonyms(entry)
        assert ("1", ALL_NODES, False) == (entry.value, entry.config_source, entry.read_only)


@pytest.mark.parametrize(
    ("host", "text"), [("h", "PLAINTEXT://h:9"), ("::1", "PLAINTEXT://[::1]:9")]
)
def test_addresses_are_written_as_kafka_writes_them(host: str, text: str) -> None:
    assert text == listener_text("PLAINTEXT", host, 9)
