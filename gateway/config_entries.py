"""Configuration entries: settings of every kind of thing, as Kafka's admin APIs show them.

Rule: a value is shown with the place it comes from, and with every place that could have set it.
Must not know: which API asks, or how values are stored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Final

from gateway.broker_settings import (
    ALL_NODES,
    ALTERABLE,
    THROTTLES,
    UNLIMITED,
    BrokerSettings,
)
from gateway.client_metrics import CLIENT_METRICS_KEYS, ClientMetrics
from gateway.config import GatewayConfig
from gateway.group_keys import GROUP_KEYS
from gateway.group_settings import GroupSettings
from gateway.wire.messages.k32_describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)
from topics import CONFIG_KEYS, ConfigEntry, ConfigSource, ConfigType, TopicDefaults, describe
from topics.config_values import normal_text

TOPIC_SOURCE: Final = 1
NODE_SOURCE: Final = 2
ALL_NODES_SOURCE: Final = 3
STATIC_BROKER_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5
CLIENT_METRICS_SOURCE: Final = 7
GROUP_SOURCE: Final = 8
_SOURCES: Final = {
    ConfigSource.TOPIC: TOPIC_SOURCE,
    ConfigSource.BROKER: STATIC_BROKER_SOURCE,
    ConfigSource.DEFAULT: DEFAULT_SOURCE,
}
_TYPES: Final = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
}
_FIELD_TYPES: Final = {bool: ConfigType.BOOLEAN, int: ConfigType.INT, str: ConfigType.STRING}
_LONG_FIELDS: Final = frozenset(
    {
        "offsets_retention_check_interval_ms",
        "connections_max_idle_ms",
        "queued_max_request_bytes",
        "queued_max_connection_bytes",
    }
)


def topic_entries(
    configs: Mapping[str, str],
    defaults: TopicDefaults,
    settings: BrokerSettings | None = None,
) -> Iterator[DescribeConfigsResourceResult]:
    """Yield every setting of a topic with these own values, sorted by name.

    Args:
        configs: the topic's own.
        defaults: in force.
        settings: tells which of the defaults were altered while the server ran.
    """
    for entry in describe(configs, defaults):
        result = _result(entry, entry.name, entry.value, read_only=False)
        if settings is not None:
            for synonym in result.synonyms:
                if synonym.source == STATIC_BROKER_SOURCE:
                    synonym.source = _source_of(synonym.name, settings)
            result.config_source = result.synonyms[0].source
        yield result


def altered_broker_entries(settings: BrokerSettings) -> Iterator[DescribeConfigsResourceResult]:
    """Yield the settings of this node, as given and as altered since."""
    for entry in broker_entries(settings.given_config, settings.given_defaults):
        if entry.name in ALTERABLE:
            entry.read_only = False
            places = [
                DescribeConfigsSynonym(name=entry.name, value=altered[entry.name], source=source)
                for level, source in ((settings.node, NODE_SOURCE), (ALL_NODES, ALL_NODES_SOURCE))
                if entry.name in (altered := settings.of(level))
            ]
            if places:
                entry.value, entry.config_source = places[0].value, places[0].source
            entry.synonyms = [*places, *entry.synonyms]
        yield entry


def _source_of(name: str, settings: BrokerSettings) -> int:
    """Return where the value of a broker-level name comes from, which was not always there."""
    if name in settings.of(settings.node):
        return NODE_SOURCE
    return ALL_NODES_SOURCE if name in settings.of(ALL_NODES) else STATIC_BROKER_SOURCE


def all_brokers_entries(settings: BrokerSettings) -> Iterator[DescribeConfigsResourceResult]:
    """Yield what was altered for all nodes."""
    for entry in altered_broker_entries(settings):
        if entry.name in (altered := settings.of(ALL_NODES)):
            entry.value, entry.config_source = altered[entry.name], ALL_NODES_SOURCE
            entry.synonyms = [one for one in entry.synonyms if one.source == ALL_NODES_SOURCE]
            yield entry


def broker_entries(
    config: GatewayConfig, defaults: TopicDefaults
) -> Iterator[DescribeConfigsResourceResult]:
    """Yield the settings of this node; all were given at the start and are read-only."""
    untouched = GatewayConfig()
    for field in fields(config):
        value, default = getattr(config, field.name), getattr(untouched, field.name)
        name = field.name.replace("_", ".")
        places = [] if value == default else [(value, STATIC_BROKER_SOURCE)]
        yield _entry(
            name,
            _field_type(field.name, value),
            None,
            [_place(name, *one) for one in [*places, (default, DEFAULT_SOURCE)]],
            read_only=True,
        )
    yield from _topic_defaults(defaults, {field.name.replace("_", ".") for field in fields(config)})
    for name in THROTTLES:
        unset = _place(name, UNLIMITED, DEFAULT_SOURCE)
        yield _entry(name, ConfigType.LONG, None, [unset], read_only=True)


def group_entries(
    settings: GroupSettings, group_id: str
) -> Iterator[DescribeConfigsResourceResult]:
    """Yield every setting that a group could have; it need not exist."""
    own, untouched = settings.of(group_id), dict(GatewayConfig().kafka_items())
    for key in GROUP_KEYS.values():
        (synonym,) = key.synonyms
        given = settings.given.get(synonym.name)
        places = [_place(synonym.name, key.default, DEFAULT_SOURCE)]
        if given is not None and given != untouched[synonym.name]:
            places.insert(0, _place(synonym.name, given, STATIC_BROKER_SOURCE))
        if key.name in own:
            places.insert(0, _place(key.name, own[key.name], GROUP_SOURCE))
        yield _entry(key.name, key.type, key.documentation, places)


def client_metrics_entries(
    metrics: ClientMetrics, name: str
) -> Iterator[DescribeConfigsResourceResult]:
    """Yield every setting of a subscription to metrics; defaults are no places of theirs."""
    own = metrics.of(name)
    for key in CLIENT_METRICS_KEYS.values():
        is_set = key.name in own
        place = _place(
            key.name,
            own.get(key.name, key.default),
            CLIENT_METRICS_SOURCE if is_set else DEFAULT_SOURCE,
        )
        entry = _entry(key.name, key.type, key.documentation, [place])
        entry.synonyms = [place] if is_set else []
        yield entry


def _topic_defaults(
    defaults: TopicDefaults, shown: set[str]
) -> Iterator[DescribeConfigsResourceResult]:
    """Yield the broker-level names under which topics' defaults are set."""
    for entry in describe({}, defaults):
        name = entry.synonyms[0].name
        if name in shown or not CONFIG_KEYS[entry.name].synonyms:
            continue
        shown.add(name)
        yield _result(entry, name, entry.synonyms[0].value, read_only=True)


def _result(
    entry: ConfigEntry, name: str, value: str, *, read_only: bool
) -> DescribeConfigsResourceResult:
    places = [_place(one.name, one.value, _SOURCES[one.source]) for one in entry.synonyms]
    result = _entry(name, entry.type, entry.documentation, places, read_only=read_only)
    result.value = value
    return result


def _place(name: str, value: bool | int | str, source: int) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=normal_text(value), source=source)


def _entry(
    name: str,
    kind: ConfigType,
    documentation: str | None,
    places: list[DescribeConfigsSynonym],
    *,
    read_only: bool = False,
) -> DescribeConfigsResourceResult:
    """Return a setting with the places that could have set it; the first one holds."""
    return DescribeConfigsResourceResult(
        name=name,
        value=places[0].value,
        read_only=read_only,
        config_source=places[0].source,
        config_type=_TYPES[kind],
        documentation=documentation,
        synonyms=places,
    )


def _field_type(name: str, value: bool | int | str) -> ConfigType:
    return ConfigType.LONG if name in _LONG_FIELDS else _FIELD_TYPES[type(value)]
