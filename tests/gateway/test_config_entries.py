"""Configuration entries: values with the places they come from."""

import pytest

from gateway.config import GatewayConfig
from gateway.config_entries import broker_entries, topic_entries
from gateway.wire.messages.k32_describe_configs import DescribeConfigsResourceResult
from topics import TopicDefaults

TOPIC, STATIC, DEFAULT = 1, 4, 5
BOOLEAN, STRING, INT, LONG = 1, 2, 3, 5


def one(
    name: str, configs: dict[str, str] | None = None, broker: dict[str, str] | None = None
) -> DescribeConfigsResourceResult:
    entries = topic_entries(configs or {}, TopicDefaults(configs=broker or {}))
    return next(entry for entry in entries if entry.name == name)


@pytest.mark.parametrize(
    ("configs", "broker", "value", "source"),
    [
        ({}, {}, "604800000", DEFAULT),
        ({}, {"log.retention.hours": "2"}, "7200000", STATIC),
        ({"retention.ms": "5"}, {"log.retention.hours": "2"}, "5", TOPIC),
    ],
)
def test_topic_value_is_shown_with_its_source(
    configs: dict[str, str], broker: dict[str, str], value: str, source: int
) -> None:
    entry = one("retention.ms", configs, broker)
    assert (value, source, False, LONG) == (
        entry.value,
        entry.config_source,
        entry.read_only,
        entry.config_type,
    )


def test_synonyms_are_all_places_the_one_in_force_first() -> None:
    entry = one("max.message.bytes", {"max.message.bytes": "7"}, {"message.max.bytes": "8"})
    assert [
        ("max.message.bytes", "7", TOPIC),
        ("message.max.bytes", "8", STATIC),
        ("message.max.bytes", "1048588", DEFAULT),
    ] == [(each.name, each.value, each.source) for each in entry.synonyms]


def test_every_entry_is_documented_and_stands_once() -> None:
    entries = list(topic_entries({}, TopicDefaults()))
    names = [entry.name for entry in entries]
    assert names == sorted(set(names))
    assert all(entry.documentation for entry in entries)


def broker(
    config: GatewayConfig, defaults: TopicDefaults | None = None
) -> dict[str, DescribeConfigsResourceResult]:
    entries = list(broker_entries(config, defaults or TopicDefaults()))
    by_name = {entry.name: entry for entry in entries}
    assert len(entries) == len(by_name)
    return by_name


def test_broker_entries_are_read_only_and_say_what_was_given() -> None:
    entries = broker(GatewayConfig(num_partitions=3))
    assert {True} == {entry.read_only for entry in entries.values()}
    given, untouched = entries["num.partitions"], entries["default.replication.factor"]
    assert ("3", STATIC) == (given.value, given.config_source)
    assert [("3", STATIC), ("1", DEFAULT)] == [(s.value, s.source) for s in given.synonyms]
    assert ("1", DEFAULT) == (untouched.value, untouched.config_source)
    assert [("1", DEFAULT)] == [(s.value, s.source) for s in untouched.synonyms]


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("node.id", "1", INT),
        ("message.max.bytes", "1048588", INT),
        ("connections.max.idle.ms", "600000", LONG),
        ("auto.create.topics.enable", "true", BOOLEAN),
        ("advertised.host", "127.0.0.1", STRING),
    ],
)
def test_broker_values_have_kafkas_text_and_type(name: str, value: str, kind: int) -> None:
    entry = broker(GatewayConfig())[name]
    assert (value, kind) == (entry.value, entry.config_type)


def test_defaults_of_topics_stand_under_their_broker_names() -> None:
    entries = broker(GatewayConfig(), TopicDefaults(configs={"log.retention.hours": "2"}))
    assert ("2", STATIC) == (
        entries["log.retention.hours"].value,
        entries["log.retention.hours"].config_source,
    )
    assert "1073741824" == entries["log.segment.bytes"].value
    assert "retention.ms" not in entries
    for name in ("min.insync.replicas", "kledger.retention.waits.for"):  # the same on both levels
        assert name in entries
    assert "leader.replication.throttled.replicas" not in entries
