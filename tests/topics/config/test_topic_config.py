"""Effective settings and where they come from."""

import pytest

from kledger.topics.config.config_keys import CONFIG_KEYS
from kledger.topics.config.topic_config import (
    ConfigSource,
    TopicDefaults,
    check_configs,
    check_names,
    check_strategy,
    describe,
    effective_config,
)
from kledger.topics.errors import InvalidConfig, StrategyNotAllowed

DEFAULTS = TopicDefaults()


def test_defaults_are_those_of_kafka() -> None:
    config = effective_config({}, DEFAULTS)
    assert (1_048_588, False, (1 << 63) - 1, 3_600_000) == (
        config.size_max, config.is_log_append_time, config.timestamp_before_max_ms,
        config.timestamp_after_max_ms,
    )  # fmt: skip
    assert (False, True, False, 604_800_000, -1, 1 << 30, 604_800_000) == (
        config.is_compacted, config.is_deleted_by_age, config.is_walked, config.retention_ms,
        config.retention_bytes, config.segment_bytes, config.segment_ms,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("of_topic", "of_broker", "expected"),
    [
        (None, None, (True, False)),
        (None, "", (False, False)),
        (None, "groups", (False, True)),
        ("subscriptions", "groups", (True, False)),
        ("groups, subscriptions", "", (True, True)),
        ("", "groups", (False, False)),
    ],
)
def test_groups_and_subscriptions_that_retention_waits_for(
    of_topic: str | None, of_broker: str | None, expected: tuple[bool, bool]
) -> None:
    name = "kledger.retention.waits.for"
    defaults = TopicDefaults(configs={} if of_broker is None else {name: of_broker})
    config = effective_config({} if of_topic is None else {name: of_topic}, defaults)
    assert expected == (config.waits_for_subscriptions, config.waits_for_groups)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kledger.retention.waits.for", "everybody"),
        ("retention.ms", "-2"), ("retention.ms", "soon"), ("retention.ms", "1.5"),
        ("retention.ms", "9223372036854775808"), ("segment.bytes", "1048575"),
        ("segment.bytes", "2147483648"), ("max.message.bytes", "-1"),
        ("cleanup.policy", "shred"), ("cleanup.policy", "delete,"),
        ("message.timestamp.type", "createtime"), ("compression.type", "brotli"),
        ("compression.gzip.level", "0"), ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"), ("compression.zstd.level", "23"),
        ("min.cleanable.dirty.ratio", "1.1"), ("min.cleanable.dirty.ratio", "nan"),
        ("preallocate", "yes"), ("min.insync.replicas", "0"), ("flush.messages", "0"),
        ("leader.replication.throttled.replicas", "1-2"),
        ("segment.index.bytes", "3"), ("local.retention.ms", "-3"), ("segment.ms", "0"),
        ("max.compaction.lag.ms", "0"), ("retention.bytes", ""),
        ("compaction.strategy", "Newest"), ("compaction.strategy", "acme:"),
        ("compaction.strategy", "acme.:Newest"), ("compaction.strategy", "acme:os.system"),
    ],
)  # fmt: skip
def test_bad_values_are_refused_with_name_expected_and_got(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        check_configs({name: text})
    assert str(caught.value).startswith(f"Invalid value {text} for configuration {name}: ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "-1"), ("retention.ms", " 5 "), ("retention.bytes", "-7"),
        ("cleanup.policy", "compact,delete"), ("cleanup.policy", ""), ("preallocate", "TRUE"),
        ("cleanup.policy", "compact,compact"),
        ("leader.replication.throttled.replicas", "*"), ("compression.gzip.level", "-1"),
        ("follower.replication.throttled.replicas", "0:1,1:2"), ("compression.zstd.level", "-5"),
        ("min.cleanable.dirty.ratio", "0"), ("remote.storage.enable", "false"),
        ("internal.segment.bytes", "100"), ("max.message.bytes", "0"),
        ("compaction.strategy", ""), ("compaction.strategy", "acme.strategies:Newest"),
    ],
)  # fmt: skip
def test_good_values_pass(name: str, text: str) -> None:
    check_configs({name: text})


@pytest.mark.parametrize(
    "name", ["nonsense", "message.format.version", "log.retention.ms", "Retention.ms", ""]
)
def test_names_that_kafka_rejects_are_rejected(name: str) -> None:
    with pytest.raises(InvalidConfig, match="Unknown topic config name"):
        check_configs({name: "1"})
    with pytest.raises(InvalidConfig):
        check_names([name])


@pytest.mark.parametrize(
    ("name", "modules", "is_allowed"),
    [
        ("", (), True), ("acme:Newest", (), False), ("acme:Newest", ("acme",), True),
        ("acme.strategies:Newest", ("acme",), True), ("acmes:Newest", ("acme",), False),
        ("acme:Newest", ("acme.strategies",), False), ("own:Newest", ("acme", "own"), True),
    ],
)  # fmt: skip
def test_strategies_of_listed_modules_are_allowed(
    name: str, modules: tuple[str, ...], is_allowed: bool
) -> None:
    defaults = TopicDefaults(compaction_strategy_modules=modules)
    config = effective_config({"compaction.strategy": name}, defaults)
    assert name == config.compaction_strategy
    if is_allowed:
        check_strategy({"compaction.strategy": f" {name} "}, defaults)
        config.check_strategy()
        return
    text = f"compaction.strategy: expected .*{', '.join(modules) or 'none'}.* got {name}"
    with pytest.raises(InvalidConfig, match=text):
        check_strategy({"compaction.strategy": name}, defaults)
    with pytest.raises(StrategyNotAllowed, match=text):
        config.check_strategy()


def test_contradiction_of_two_values_is_refused() -> None:
    configs = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}
    check_configs(configs)
    with pytest.raises(InvalidConfig, match=r"expected at most 9, .* got 10"):
        effective_config(configs, DEFAULTS)


def test_topic_value_before_broker_value_before_default() -> None:
    defaults = TopicDefaults(configs={"log.retention.hours": "2", "message.max.bytes": "5000"})
    assert 7_200_000 == effective_config({}, defaults).retention_ms
    assert 5000 == effective_config({}, defaults).size_max
    assert 1 == effective_config({"retention.ms": "1"}, defaults).retention_ms


def test_first_synonym_wins_and_negative_hours_are_no_limit() -> None:
    configs = {"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}
    assert 4 == effective_config({}, TopicDefaults(configs=configs)).retention_ms
    del configs["log.retention.ms"]
    assert 180_000 == effective_config({}, TopicDefaults(configs=configs)).retention_ms
    configs["log.retention.minutes"] = "-1"
    assert -1 == effective_config({}, TopicDefaults(configs=configs)).retention_ms


@pytest.mark.parametrize(
    "fields",
    [
        {"configs": {"log.retention.ms": "never"}}, {"configs": {"log.roll.hours": "0"}},
        {"configs": {"log.segment.bytes": "7"}}, {"batch_validation": "deep"},
        {"num_partitions": 0}, {"compaction_strategy_modules": ("acme:Newest",)},
    ],
)  # fmt: skip
def test_bad_defaults_are_refused_when_they_are_made(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig):
        TopicDefaults(**fields)  # type: ignore[arg-type]


def test_describe_lists_every_public_name_with_its_source() -> None:
    defaults = TopicDefaults(configs={"log.retention.hours": "2"})
    entries = {entry.name: entry for entry in describe({"retention.ms": "5"}, defaults)}
    assert sorted(entries) == list(entries)
    assert 40 == len(entries)
    found = entries["retention.ms"]
    assert ("5", ConfigSource.TOPIC) == (found.value, found.source)
    assert [
        ("retention.ms", "5", ConfigSource.TOPIC),
        ("log.retention.hours", "2", ConfigSource.BROKER),
    ] == [(each.name, each.value, each.source) for each in found.synonyms]
    without = {entry.name: entry for entry in describe({}, defaults)}["retention.ms"]
    assert ("7200000", ConfigSource.BROKER) == (without.value, without.source)
    shared = {"retention.ms": "6"}
    for own, value in (({"retention.ms": "5"}, "5"), ({}, "6")):
        inherited = {each.name: each for each in describe(own, defaults, shared)}["retention.ms"]
        assert value == inherited.value
        assert ("retention.ms", "6", ConfigSource.NAMESPACE) in [
            (each.name, each.value, each.source) for each in inherited.synonyms
        ]
    assert ConfigSource.DEFAULT is entries["segment.ms"].source
    assert all(entry.documentation.endswith(".") for entry in entries.values())


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("preallocate", " TRUE", "true"),
        ("retention.ms", "+05", "5"),
        ("min.cleanable.dirty.ratio", ".5", "0.5"),
        ("cleanup.policy", " compact , delete ", "compact,delete"),
    ],
)
def test_values_are_shown_as_apache_kafka_writes_them(name: str, text: str, shown: str) -> None:
    entry = next(one for one in describe({name: text}, TopicDefaults()) if one.name == name)
    assert (shown, shown) == (entry.value, entry.synonyms[0].value)


def test_compaction_walks_records_and_keeps_everything() -> None:
    config = effective_config({"cleanup.policy": "compact", "max.compaction.lag.ms": "9"}, DEFAULTS)
    assert (True, True, False, 9) == (
        config.is_compacted, config.is_walked, config.is_deleted_by_age, config.segment_ms
    )  # fmt: skip
    assert effective_config({}, TopicDefaults(batch_validation="full")).is_walked
    assert not effective_config({"cleanup.policy": ""}, DEFAULTS).is_deleted_by_age


def test_record_rules_are_the_window_around_now() -> None:
    configs = {"message.timestamp.before.max.ms": "10", "message.timestamp.after.max.ms": "5"}
    rules = effective_config(configs, DEFAULTS).record_rules(100)
    assert (False, 90, 105) == (rules.is_key_required, rules.timestamp_min, rules.timestamp_max)
    configs["message.timestamp.type"] = "LogAppendTime"
    assert effective_config(configs, DEFAULTS).record_rules(100).timestamp_max > 1 << 62


def test_every_default_is_allowed_by_its_own_rule() -> None:
    check_configs({key.name: key.default for key in CONFIG_KEYS.values()})


def test_topics_with_the_same_settings_share_the_outcome() -> None:
    """Thousands of topics are created and loaded; each set of settings is worked out once."""
    configs = {"retention.ms": "5"}
    shared = effective_config(configs, DEFAULTS)
    assert effective_config(dict(configs), TopicDefaults()) is shared
    assert effective_config(configs, TopicDefaults(batch_validation="full")) != shared
    assert effective_config({"retention.ms": "6"}, DEFAULTS) != shared
    assert describe(configs, DEFAULTS) is not describe(configs, DEFAULTS)


def test_a_default_is_a_synonym_where_one_broker_level_name_has_it() -> None:
    entries = {entry.name: entry for entry in describe({}, TopicDefaults())}
    for name in ("retention.ms", "flush.ms", "remote.log.copy.disable"):
        assert () == entries[name].synonyms
    assert "604800000" == entries["retention.ms"].value
    assert [("message.max.bytes", "1048588")] == [
        (place.name, place.value) for place in entries["max.message.bytes"].synonyms
    ]
