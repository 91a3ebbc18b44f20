"""Configuration entries: values with the places they come from."""

import pytest

from kledger.gateway.configs.config_entries import topic_entries
from kledger.gateway.wire.messages.k32_describe_configs import DescribeConfigsResourceResult
from kledger.topics import TopicDefaults

TOPIC, STATIC, DEFAULT = 1, 4, 5
LONG = 5


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


def test_synonyms_are_all_sources_the_effective_one_first() -> None:
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
