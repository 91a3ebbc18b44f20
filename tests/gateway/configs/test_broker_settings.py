"""Altered settings of this node: which value holds, what is refused, what outlives a restart."""

from collections.abc import Mapping

import pytest

from kledger.gateway.api_errors import ApiError
from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.broker_entries import node_entries
from kledger.gateway.configs.broker_keys import BROKER_KEYS, THROTTLES, UNLIMITED
from kledger.gateway.configs.broker_settings import ALL_NODES, FIELDS
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import TopicStorageFailed
from tests.gateway.running import RunningGateway, running_gateway

NODE = "1"
SIZE, AGE = "message.max.bytes", "log.retention.ms"


async def alter(gateway: RunningGateway, name: str, changes: Mapping[str, str | None]) -> None:
    settings = gateway.services.broker_settings
    await settings.alter(name, changes, replace=False, validate_only=False)


async def test_this_node_before_all_nodes_before_what_was_given() -> None:
    config = GatewayConfig(message_max_bytes=7_000)
    async with running_gateway(config) as gateway:
        topic = await gateway.create_topic("t")
        settings, in_force, of_topic = gateway.services.broker_settings, [], []
        for name, value in ((ALL_NODES, "200"), (NODE, "300"), (NODE, None), (ALL_NODES, None)):
            await alter(gateway, name, {SIZE: value})
            in_force.append((settings.value(SIZE), config.message_max_bytes))
            of_topic.append(topic.config.size_max)
        assert [("200", 200), ("300", 300), ("200", 200), ("7000", 7_000)] == in_force
        assert [200, 300, 200, 1_048_588] == of_topic


async def test_defaults_of_topics_change_at_once_for_old_and_new_ones() -> None:
    async with running_gateway() as gateway:
        old = await gateway.create_topic("old")
        own = await gateway.create_topic("own", configs={"retention.ms": "9"})
        await alter(gateway, NODE, {AGE: "5", "log.cleanup.policy": "compact"})
        new = await gateway.create_topic("new")
        assert [5, 9, 5] == [one.config.retention_ms for one in (old, own, new)]
        assert old.config.is_compacted
        await alter(gateway, NODE, {AGE: None})
        assert 604_800_000 == old.config.retention_ms


@pytest.mark.parametrize("name", THROTTLES)
async def test_throttles_of_moving_partitions_are_kept(name: str) -> None:
    async with running_gateway() as gateway:
        settings = gateway.services.broker_settings
        assert UNLIMITED == settings.value(name)
        await alter(gateway, NODE, {name: "1000"})
        assert "1000" == settings.value(name)
        (shown,) = [one for one in node_entries(settings) if one.name == name]
        assert ("1000", False) == (shown.value, shown.read_only)
        with pytest.raises(ApiError):
            await alter(gateway, NODE, {name: "-1"})


async def test_altered_settings_survive_a_restart() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway:
        await gateway.create_topic("t")
        await alter(gateway, NODE, {AGE: "5"})
        await alter(gateway, ALL_NODES, {"max.connections": "77"})
    config = GatewayConfig()
    async with running_gateway(config, engine=engine) as gateway:
        topic = gateway.services.registry.get("t")
        assert topic is not None
        assert (5, 77) == (topic.config.retention_ms, config.max_connections)
        await alter(gateway, NODE, {AGE: None})
        await alter(gateway, ALL_NODES, {"max.connections": None})
    async with running_gateway(engine=engine) as gateway:
        assert "" == gateway.services.broker_settings.value(AGE)
        topic = gateway.services.registry.get("t")
        assert topic is not None
        assert 604_800_000 == topic.config.retention_ms


@pytest.mark.parametrize(
    "changes",
    [
        {"num.partitions": "3"},
        {"log.retention.hours": "3"},
        {"broker.id": "3"},
        {"log.cleaner.threads": "-1"},
        {"log.cleaner.threads": "100", "num.partitions": "1"},
        {"ssl.client.auth": "perhaps"},
        {"ssl.keystore.location": "/x"},
        {"principal.builder.class": "org.example.Other"},
        {"listeners": "PLAINTEXT://:1"},
        {"log.segment.bytes": "1"},
        {"log.cleanup.policy": "melt"},
        {"max.connections": "-1"},
        {SIZE: "many"},
        {AGE: "5", "node.id": "1"},
        {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "3"},
    ],
)
async def test_what_cannot_be_altered_is_refused_as_a_whole(changes: dict[str, str]) -> None:
    async with running_gateway() as gateway:
        with pytest.raises(ApiError) as caught:
            await alter(gateway, NODE, changes)
        assert ErrorCode.INVALID_REQUEST == caught.value.code
        assert {} == gateway.services.broker_settings.of(NODE)


async def test_another_node_has_nothing_here() -> None:
    async with running_gateway() as gateway:
        for name in ("2", "one"):
            with pytest.raises(ApiError, match="Unexpected broker id, expected 1 or empty"):
                await alter(gateway, name, {AGE: "5"})


async def test_what_is_only_checked_or_cannot_be_stored_does_not_hold() -> None:
    async with running_gateway() as gateway:
        settings = gateway.services.broker_settings
        await settings.alter(NODE, {AGE: "5"}, replace=False, validate_only=True)
        gateway.engine.fail_next("commit")
        with pytest.raises(TopicStorageFailed):
            await alter(gateway, NODE, {AGE: "5"})
        assert {} == settings.of(NODE)
        assert "" == settings.value(AGE)


async def test_replacing_takes_back_what_is_not_named() -> None:
    async with running_gateway() as gateway:
        await alter(gateway, NODE, {AGE: "5", SIZE: "200"})
        settings = gateway.services.broker_settings
        await settings.alter(NODE, {SIZE: "300"}, replace=True, validate_only=False)
        assert {SIZE: "300"} == settings.of(NODE)


def test_settings_of_the_gateway_among_them_exist() -> None:
    assert FIELDS.keys() <= BROKER_KEYS.keys()
    assert all(hasattr(GatewayConfig(), field) for field in FIELDS.values())


@pytest.mark.parametrize(
    "settings",
    [
        {"log.cleaner.threads": "2"},
        {"log.cleaner.io.max.bytes.per.second": "1.7976931348623157E308"},
        {"num.io.threads": "16", "background.threads": "4"},
        {"ssl.client.auth": "required"},
        {"listener.name.internal.ssl.key.password": "secret"},
        {"transaction.partition.verification.enable": "false"},
        {"no.such": "kept as it is "},
        {"listener.security.protocol.map": BROKER_KEYS["listener.security.protocol.map"].default},
    ],
)
async def test_what_kafka_can_alter_is_taken(settings: dict[str, str]) -> None:
    async with running_gateway() as gateway:
        await alter(gateway, NODE, settings)
        assert settings == gateway.services.broker_settings.of(NODE)
        await alter(gateway, NODE, dict.fromkeys(settings))
        assert {} == gateway.services.broker_settings.of(NODE)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (NODE, {"num.partitions": "3"}, r"Cannot update these configs dynamically: \[num.part"),
        (NODE, {"ssl.key.password": "x"}, "only per-listener using the listener prefix"),
        (ALL_NODES, {"ssl.client.auth": "none"}, "at default cluster level, broker id must be"),
        (NODE, {"background.threads": "x"}, "Invalid value x for .*: Not a number of type INT"),
        (NODE, {"background.threads": "0"}, "Value must be at least 1"),
        (NODE, {"ssl.client.auth": "x"}, "String must be one of: required, requested, none"),
        (NODE, {"principal.builder.class": "x"}, "Class x could not be found"),
    ],
)
async def test_refusals_are_in_kafkas_words(
    name: str, settings: dict[str, str], message: str
) -> None:
    async with running_gateway() as gateway:
        with pytest.raises(ApiError, match=message) as caught:
            await alter(gateway, name, settings)
        assert ErrorCode.INVALID_REQUEST == caught.value.code


async def test_min_insync_replicas_belongs_to_all_nodes() -> None:
    name = "min.insync.replicas"
    async with running_gateway() as gateway:
        settings = gateway.services.broker_settings
        assert {name: "1"} == settings.of(ALL_NODES)
        await alter(gateway, ALL_NODES, {name: "2"})
        assert {name: "2"} == settings.of(ALL_NODES)
        for level, text in ((NODE, "1"), (ALL_NODES, None)):
            with pytest.raises(ApiError, match=r"(altered|removed) while ELR is enabled") as caught:
                await alter(gateway, level, {name: text})
            assert ErrorCode.INVALID_CONFIG == caught.value.code


async def test_idle_producers_are_forgotten_after_the_altered_time() -> None:
    async with running_gateway() as gateway:
        old = await gateway.create_topic("old")
        await alter(gateway, NODE, {"producer.id.expiration.ms": "7"})
        new = await gateway.create_topic("new")
        assert [7, 7] == [one.config.producer_id_expiration_ms for one in (old, new)]
        await alter(gateway, NODE, {"producer.id.expiration.ms": None})
        assert 86_400_000 == old.config.producer_id_expiration_ms
