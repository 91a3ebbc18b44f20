"""The table of broker-level names: whole, and the same as what topics' settings say."""

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.broker_keys import (
    BROKER_KEYS,
    KAFKA_KEYS,
    THROTTLES,
    UpdateMode,
    find_key,
    without_listener_prefix,
)
from kledger.topics import CONFIG_KEYS, ConfigType
from kledger.topics.config.config_keys import NO_EFFECT
from kledger.topics.config.config_values import parse


def test_every_name_of_kafka_stands_once_in_order() -> None:
    assert 340 == len(KAFKA_KEYS)
    assert sorted(KAFKA_KEYS) == list(KAFKA_KEYS)
    assert not KAFKA_KEYS.keys() & THROTTLES.keys()


@pytest.mark.parametrize(
    ("name", "kind", "default", "mode"),
    [
        ("broker.id", ConfigType.INT, "-1", UpdateMode.READ_ONLY),
        ("log.cleaner.threads", ConfigType.INT, "1", UpdateMode.CLUSTER_WIDE),
        ("log.retention.ms", ConfigType.LONG, None, UpdateMode.CLUSTER_WIDE),
        ("ssl.client.auth", ConfigType.STRING, "none", UpdateMode.PER_BROKER),
        ("ssl.key.password", ConfigType.PASSWORD, None, UpdateMode.PER_LISTENER),
        ("offsets.topic.replication.factor", ConfigType.SHORT, "3", UpdateMode.READ_ONLY),
        ("leader.replication.throttled.rate", ConfigType.LONG, str(2**63 - 1), None),
    ],
)
def test_facts_are_kafkas(
    name: str, kind: ConfigType, default: str | None, mode: UpdateMode | None
) -> None:
    key = BROKER_KEYS[name]
    assert (name, kind, default) == (key.name, key.type, key.default)
    assert key.mode is (mode or UpdateMode.CLUSTER_WIDE)
    assert key.is_sensitive is (kind is ConfigType.PASSWORD)


def test_what_can_be_altered_says_what_it_does_here() -> None:
    for key in BROKER_KEYS.values():
        if key.mode is not UpdateMode.READ_ONLY:
            assert key.documentation, key.name


def test_defaults_are_values_that_pass() -> None:
    for key in BROKER_KEYS.values():
        if key.default is not None:
            parse(key.name, key.type, key.default, key.allowed)


def test_defaults_of_topics_can_be_altered_under_their_first_name() -> None:
    for topic_key in CONFIG_KEYS.values():
        for index, synonym in enumerate(topic_key.synonyms):
            key = BROKER_KEYS[synonym.name]
            assert (index == 0) is (key.mode is UpdateMode.CLUSTER_WIDE)
            if index == 0:
                assert (topic_key.type, topic_key.documentation) == (key.type, key.documentation)


def test_settings_of_the_gateway_are_among_them_but_for_its_own() -> None:
    assert {
        "cluster.id",
        "advertised.host",
        "advertised.port",
        "listener.addresses",
        "advertised.addresses",
        "listener.settings",
        "log.cleaner.slow.bytes.per.second",
        "log.cleaner.slow.burst.bytes",
        "queued.max.connection.bytes",
        "queued.max.response.bytes",
        "send.buffer.max.bytes",
        # Of Kafka's authorizer, which reads them by itself.
        "allow.everyone.if.no.acl.found",
        "super.users",
    } == {name for name, _ in GatewayConfig().kafka_items()} - KAFKA_KEYS.keys()


def test_a_listeners_prefix_is_looked_behind() -> None:
    name = "listener.name.internal.ssl.key.password"
    assert "ssl.key.password" == without_listener_prefix(name)
    assert find_key(name) is BROKER_KEYS["ssl.key.password"]
    assert find_key("listener.name.internal.nope") is None
    assert find_key("nope") is None


def test_what_has_no_effect_says_so() -> None:
    for name in (
        "log.cleaner.io.buffer.size",
        "ssl.client.auth",
        "num.io.threads",
        "background.threads",
    ):
        assert (BROKER_KEYS[name].documentation or "").startswith(NO_EFFECT)
