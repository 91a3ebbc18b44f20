"""Broker entries: the settings of this node, and of all nodes, as DescribeConfigs shows them.

Rule: every name that a broker of Apache Kafka has is listed, with the value that is true here: what
was altered, else what was given at the start, else the default.
Must not know: which API asks, or how values are stored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.broker_keys import KAFKA_KEYS, BrokerKey, UpdateMode, find_key
from kledger.gateway.configs.broker_settings import (
    ADVERTISED_LISTENERS,
    ALL_NODES,
    PRODUCER_ID_EXPIRATION,
    BrokerSettings,
)
from kledger.gateway.configs.config_entries import (
    ALL_NODES_SOURCE,
    DEFAULT_SOURCE,
    NODE_SOURCE,
    STATIC_BROKER_SOURCE,
    config_entry,
    config_synonym,
)
from kledger.gateway.wire.messages.k32_describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)
from kledger.topics import CONFIG_KEYS, ConfigType
from kledger.topics.config.config_values import normal_text

FIXED_VALUES: Final = {
    "process.roles": "broker,controller",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}
"""Values that are fixed in every server and differ from Kafka's default."""
NOT_SHOWN: Final = {"listener_addresses", "advertised_addresses", "listener_settings"}
"""Shown as `listeners` and `advertised.listeners`; settings of one listener may be secrets."""
_PYTHON_TYPES: Final = {bool: ConfigType.BOOLEAN, int: ConfigType.INT, str: ConfigType.STRING}
_DEFAULTS: Final = GatewayConfig()


@dataclass(frozen=True, slots=True)
class _StaticSetting:
    """The values of a setting that is not altered: this server's own, and the default."""

    value: str | None
    default: str | None


def node_entries(settings: BrokerSettings) -> Iterator[DescribeConfigsResourceResult]:
    """Yield the settings of this node, as given and as altered since."""
    levels = (
        (settings.of(settings.node), NODE_SOURCE),
        (settings.of(ALL_NODES), ALL_NODES_SOURCE),
    )
    given = _static_values(settings)
    altered = (name for level, _ in levels for name in level)
    for name in dict.fromkeys((*KAFKA_KEYS, *given, *altered)):
        synonyms = [
            config_synonym(name, level[name], source) for level, source in levels if name in level
        ]
        yield _described(name, [*synonyms, *_static_synonyms(name, given.get(name))])


def all_nodes_entries(settings: BrokerSettings) -> Iterator[DescribeConfigsResourceResult]:
    """Yield what is set for all nodes."""
    for name, text in settings.of(ALL_NODES).items():
        yield _described(name, [config_synonym(name, text, ALL_NODES_SOURCE)])


def _described(name: str, synonyms: list[DescribeConfigsSynonym]) -> DescribeConfigsResourceResult:
    key = find_key(name)
    kind = key.type if key is not None else _kledger_setting_type(name)
    entry = config_entry(
        name,
        kind,
        key.documentation if key is not None else None,
        synonyms,
        read_only=key is None or key.name != name or key.mode is UpdateMode.READ_ONLY,
    )
    if kind is None or (key is not None and key.is_sensitive):
        # A name without a key is unknown: its value may be a secret.
        entry.is_sensitive = True
        entry.value = None
        for synonym in entry.synonyms:
            synonym.value = None
    return entry


def _kledger_setting_type(name: str) -> ConfigType | None:
    """Return the type of a setting that only this server has; None for an unknown one."""
    value = getattr(_DEFAULTS, name.replace(".", "_"), None)
    return None if value is None else _PYTHON_TYPES[type(value)]


def _static_synonyms(name: str, given: _StaticSetting | None) -> list[DescribeConfigsSynonym]:
    key = find_key(name)
    if given is None:
        given = _StaticSetting(None, _default_of(key))
    name = key.name if key is not None else name
    sources = ((given.value, STATIC_BROKER_SOURCE), (given.default, DEFAULT_SOURCE))
    return [config_synonym(name, text, source) for text, source in sources if text is not None]


def _static_values(settings: BrokerSettings) -> Mapping[str, _StaticSetting]:
    """Return the settings that this server was started with, Kafka's names first."""
    config, defaults = settings.static_config, settings.static_defaults
    given: dict[str, _StaticSetting] = {}
    for field in fields(config):
        if field.name in NOT_SHOWN:
            continue
        name = field.name.replace("_", ".")
        texts: list[str | None] = [
            normal_text(getattr(each, field.name)) for each in (config, _DEFAULTS)
        ]
        if name in KAFKA_KEYS and KAFKA_KEYS[name].default is None:
            texts = [text or None for text in texts]  # Kafka has no value for it, not an empty one
        given[name] = _static_value(*texts)
    for key in CONFIG_KEYS.values():
        for synonym in key.synonyms:
            text = defaults.configs.get(synonym.name)
            if text is not None or synonym.name not in KAFKA_KEYS:
                given[synonym.name] = _static_value(text, _default_of(find_key(synonym.name)))
    fixed_values = {
        **FIXED_VALUES,
        ADVERTISED_LISTENERS: listener_text(
            "PLAINTEXT", config.advertised_host, config.advertised_port
        ),
        **settings.fixed_values,
        "broker.id": settings.node,
        "node.id": settings.node,
        PRODUCER_ID_EXPIRATION: str(defaults.producer_id_expiration_ms),
    }
    return given | {
        name: _static_value(text, _default_of(KAFKA_KEYS[name]))
        for name, text in fixed_values.items()
    }


def _default_of(key: BrokerKey | None) -> str | None:
    return key.default if key is not None else None


def _static_value(text: str | None, default: str | None) -> _StaticSetting:
    return _StaticSetting(None if text == default else text, default)


def listener_text(name: str, host: str, port: int) -> str:
    """Return an address as Kafka writes listeners."""
    return f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}"
