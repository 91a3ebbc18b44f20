"""Broker entries: the settings of this node, and of all nodes, as DescribeConfigs shows them.

Rule: every name that a broker of Apache Kafka has is listed, with the value that is true here: what
was altered, else what was given at the start, else the default.
Must not know: which API asks, or how values are stored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from kledger.gateway.broker_keys import LISTED, BrokerKey, UpdateMode, find_key
from kledger.gateway.broker_settings import ALL_NODES, PRODUCER_ID_EXPIRATION, BrokerSettings
from kledger.gateway.config import GatewayConfig
from kledger.gateway.config_entries import (
    ALL_NODES_SOURCE,
    DEFAULT_SOURCE,
    NODE_SOURCE,
    STATIC_BROKER_SOURCE,
    place,
    shown_entry,
)
from kledger.gateway.wire.messages.k32_describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)
from kledger.topics import CONFIG_KEYS, ConfigType
from kledger.topics.config_values import normal_text

FACTS: Final = {
    "process.roles": "broker,controller",
    "log.cleaner.enable": "false",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}
"""What is so in every server and differs from Kafka's default."""
_PYTHON_TYPES: Final = {bool: ConfigType.BOOLEAN, int: ConfigType.INT, str: ConfigType.STRING}
_UNTOUCHED: Final = GatewayConfig()


@dataclass(frozen=True, slots=True)
class _Given:
    """What a setting has if nobody has altered it: a value of this server, and a default."""

    value: str | None
    default: str | None


def node_entries(settings: BrokerSettings) -> Iterator[DescribeConfigsResourceResult]:
    """Yield the settings of this node, as given and as altered since."""
    levels = (
        (settings.of(settings.node), NODE_SOURCE),
        (settings.of(ALL_NODES), ALL_NODES_SOURCE),
    )
    given = _given_values(settings)
    altered = (name for level, _ in levels for name in level)
    for name in dict.fromkeys((*LISTED, *given, *altered)):
        places = [place(name, level[name], source) for level, source in levels if name in level]
        yield _shown(name, [*places, *_given_places(name, given.get(name))])


def all_nodes_entries(settings: BrokerSettings) -> Iterator[DescribeConfigsResourceResult]:
    """Yield what is set for all nodes."""
    for name, text in settings.of(ALL_NODES).items():
        yield _shown(name, [place(name, text, ALL_NODES_SOURCE)])


def _shown(name: str, places: list[DescribeConfigsSynonym]) -> DescribeConfigsResourceResult:
    key = find_key(name)
    kind = key.type if key is not None else _own_type(name)
    entry = shown_entry(
        name,
        kind,
        key.documentation if key is not None else None,
        places,
        read_only=key is None or key.name != name or key.mode is UpdateMode.READ_ONLY,
    )
    if kind is None or (key is not None and key.is_sensitive):
        # Nobody knows what a name without a key is for: it may be a secret.
        entry.is_sensitive = True
        entry.value = None
        for synonym in entry.synonyms:
            synonym.value = None
    return entry


def _own_type(name: str) -> ConfigType | None:
    """Return the type of a setting that only this server has; None for one that nobody knows."""
    value = getattr(_UNTOUCHED, name.replace(".", "_"), None)
    return None if value is None else _PYTHON_TYPES[type(value)]


def _given_places(name: str, given: _Given | None) -> list[DescribeConfigsSynonym]:
    key = find_key(name)
    if given is None:
        given = _Given(None, _default_of(key))
    name = key.name if key is not None else name
    sources = ((given.value, STATIC_BROKER_SOURCE), (given.default, DEFAULT_SOURCE))
    return [place(name, text, source) for text, source in sources if text is not None]


def _given_values(settings: BrokerSettings) -> Mapping[str, _Given]:
    """Return what this server was given, by Kafka's name and then by names of its own."""
    config, defaults = settings.given_config, settings.given_defaults
    given: dict[str, _Given] = {}
    for field in fields(config):
        name = field.name.replace("_", ".")
        texts = (normal_text(getattr(each, field.name)) for each in (config, _UNTOUCHED))
        given[name] = _given_value(*texts)
    for key in CONFIG_KEYS.values():
        for synonym in key.synonyms:
            text = defaults.configs.get(synonym.name)
            if text is not None or synonym.name not in LISTED:
                given[synonym.name] = _given_value(text, _default_of(find_key(synonym.name)))
    facts = {
        **FACTS,
        **settings.facts,
        "broker.id": settings.node,
        "node.id": settings.node,
        "advertised.listeners": plaintext(config.advertised_host, config.advertised_port),
        PRODUCER_ID_EXPIRATION: str(defaults.producer_id_expiration_ms),
    }
    return given | {
        name: _given_value(text, _default_of(LISTED[name])) for name, text in facts.items()
    }


def _default_of(key: BrokerKey | None) -> str | None:
    return key.default if key is not None else None


def _given_value(text: str | None, default: str | None) -> _Given:
    return _Given(None if text == default else text, default)


def plaintext(host: str, port: int) -> str:
    """Return an address as Kafka writes listeners."""
    return f"PLAINTEXT://[{host}]:{port}" if ":" in host else f"PLAINTEXT://{host}:{port}"
