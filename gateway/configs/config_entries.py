"""Configuration entries: settings of every kind of thing, as Kafka's admin APIs show them.

Rule: a value is shown with its source, and with its synonyms: all sources that set it (KIP-226).
Must not know: which API asks, or how values are stored.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.broker_settings import ALL_NODES, BrokerSettings
from kledger.gateway.configs.client_metrics import CLIENT_METRICS_KEYS, ClientMetricsSubscriptions
from kledger.gateway.configs.group_keys import GROUP_KEYS
from kledger.gateway.configs.group_settings import GroupSettings
from kledger.gateway.wire.messages.k32_describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)
from kledger.topics import ConfigEntry, ConfigSource, ConfigType, TopicDefaults, describe
from kledger.topics.config.config_values import normal_text
from kledger.topics.config.topic_config import NO_CONFIGS

TOPIC_SOURCE: Final = 1
NODE_SOURCE: Final = 2
ALL_NODES_SOURCE: Final = 3
STATIC_BROKER_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5
CLIENT_METRICS_SOURCE: Final = 7
GROUP_SOURCE: Final = 8
_SOURCES: Final = {
    ConfigSource.TOPIC: TOPIC_SOURCE,
    ConfigSource.NAMESPACE: ALL_NODES_SOURCE,  # Kafka has no word for it; this one is nearest
    ConfigSource.BROKER: STATIC_BROKER_SOURCE,
    ConfigSource.DEFAULT: DEFAULT_SOURCE,
}
UNKNOWN_TYPE: Final = 0
_TYPES: Final = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.SHORT: 4,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
    ConfigType.CLASS: 8,
    ConfigType.PASSWORD: 9,
}


def topic_entries(
    configs: Mapping[str, str],
    defaults: TopicDefaults,
    settings: BrokerSettings | None = None,
    namespace_configs: Mapping[str, str] = NO_CONFIGS,
) -> Iterator[DescribeConfigsResourceResult]:
    """Yield every setting of a topic with these own values, sorted by name.

    Args:
        configs: the topic's own.
        defaults: in force.
        settings: the defaults that were altered at runtime.
        namespace_configs: of its namespace.
    """
    for entry in describe(configs, defaults, namespace_configs):
        result = _result(entry, entry.name, entry.value, read_only=False)
        if settings is not None:
            for synonym in result.synonyms:
                if synonym.source == STATIC_BROKER_SOURCE:
                    synonym.source = _source_of(synonym.name, settings)
            if result.synonyms:
                result.config_source = result.synonyms[0].source
        yield result


def _source_of(name: str, settings: BrokerSettings) -> int:
    """Return the source of the value of a broker-level name."""
    if name in settings.of(settings.node):
        return NODE_SOURCE
    return ALL_NODES_SOURCE if name in settings.of(ALL_NODES) else STATIC_BROKER_SOURCE


def group_entries(
    settings: GroupSettings, group_id: str
) -> Iterator[DescribeConfigsResourceResult]:
    """Yield every setting that a group can have; the group need not exist."""
    own, untouched = settings.of(group_id), dict(GatewayConfig().kafka_items())
    for key in GROUP_KEYS.values():
        (synonym,) = key.synonyms
        given = settings.given.get(synonym.name)
        synonyms = [config_synonym(synonym.name, key.default, DEFAULT_SOURCE)]
        if given is not None and given != untouched[synonym.name]:
            synonyms.insert(0, config_synonym(synonym.name, given, STATIC_BROKER_SOURCE))
        if key.name in own:
            synonyms.insert(0, config_synonym(key.name, own[key.name], GROUP_SOURCE))
        yield config_entry(key.name, key.type, key.documentation, synonyms)


def client_metrics_entries(
    metrics: ClientMetricsSubscriptions, name: str
) -> Iterator[DescribeConfigsResourceResult]:
    """Yield every setting of a subscription to metrics; defaults are no synonyms of theirs."""
    own = metrics.of(name)
    for key in CLIENT_METRICS_KEYS.values():
        is_set = key.name in own
        only_synonym = config_synonym(
            key.name,
            own.get(key.name, key.default),
            CLIENT_METRICS_SOURCE if is_set else DEFAULT_SOURCE,
        )
        entry = config_entry(key.name, key.type, key.documentation, [only_synonym])
        entry.synonyms = [only_synonym] if is_set else []
        yield entry


def _result(
    entry: ConfigEntry, name: str, value: str, *, read_only: bool
) -> DescribeConfigsResourceResult:
    synonyms = [config_synonym(one.name, one.value, _SOURCES[one.source]) for one in entry.synonyms]
    result = config_entry(name, entry.type, entry.documentation, synonyms, read_only=read_only)
    result.value = value
    return result


def config_synonym(name: str, value: bool | int | str, source: int) -> DescribeConfigsSynonym:
    """Return one source of a value."""
    return DescribeConfigsSynonym(name=name, value=normal_text(value), source=source)


def config_entry(
    name: str,
    kind: ConfigType | None,
    documentation: str | None,
    synonyms: list[DescribeConfigsSynonym],
    *,
    read_only: bool = False,
) -> DescribeConfigsResourceResult:
    """Return a setting with all sources of its value; the first one is effective.

    Args:
        name: of the setting.
        kind: None if it is unknown.
        documentation: its effect here.
        synonyms: none if it has no value.
        read_only: whether it can be altered.
    """
    return DescribeConfigsResourceResult(
        name=name,
        value=synonyms[0].value if synonyms else None,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else DEFAULT_SOURCE,
        config_type=UNKNOWN_TYPE if kind is None else _TYPES[kind],
        documentation=documentation,
        synonyms=synonyms,
    )
