"""Broker settings: what of this node's configuration can be altered while it runs.

Rule: an altered value holds when its row is durable, at once and after a restart. One for this node
comes before one for all nodes, and either before what was given at the start (KIP-226).
Must not know: messages, sources of settings at the start.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gateway.address_limits import parse_overrides
from gateway.config import GatewayConfig
from gateway.kept_settings import KeptSettings
from gateway.refusals import Refused
from gateway.wire.error_codes import ErrorCode
from ledger import LedgerStore
from topics import CONFIG_KEYS, ConfigType, InvalidConfig, TopicDefaults, TopicRegistry
from topics.config_keys import ConfigKey
from topics.config_values import Allowed, ConfigValue, at_least, parse

PREFIX = b"gateway/broker_settings/"
ALL_NODES = ""
FIELDS: Final = {
    name: field
    for field in (
        "max_connections",
        "max_connections_per_ip",
        "max_connections_per_ip_overrides",
        "message_max_bytes",
    )
    for name in (field.replace("_", "."),)
}
"""Settings of the gateway among them, by name."""
THROTTLES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Kept for `kafka-reassign-partitions --throttle`; nothing moves here that could be slowed."""
UNLIMITED: Final = str((1 << 63) - 1)


def _are_overrides(value: ConfigValue) -> bool:
    try:
        return bool(parse_overrides(str(value))) or not value
    except ValueError:
        return False


OVERRIDES: Final = Allowed("address:count,address:count,…", _are_overrides)


def _alterable() -> dict[str, ConfigKey]:
    """Limits of connections, throttles, and the first broker-level name of what topics have."""
    keys = {
        name: ConfigKey(name, ConfigType.INT, "", "", at_least(0))
        for name in ("max.connections", "max.connections.per.ip")
    }
    name = "max.connections.per.ip.overrides"
    keys[name] = ConfigKey(name, ConfigType.STRING, "", "", OVERRIDES)
    for name in THROTTLES:
        keys[name] = ConfigKey(name, ConfigType.LONG, UNLIMITED, "", at_least(0))
    for key in CONFIG_KEYS.values():
        if key.synonyms:
            name = key.synonyms[0].name
            keys[name] = ConfigKey(name, key.type, key.default, key.documentation, key.allowed)
    return keys


ALTERABLE: Final = _alterable()


class BrokerSettings(KeptSettings):
    """The altered settings of one server, in force."""

    def __init__(self, store: LedgerStore, registry: TopicRegistry, config: GatewayConfig) -> None:
        super().__init__(store, PREFIX)
        self._registry = registry
        self._config = config
        self._given = {name: getattr(config, field) for name, field in FIELDS.items()}
        self.given_defaults: TopicDefaults = registry.defaults
        self._enforce(self.node)

    @property
    def node(self) -> str:
        """The name of this node as a resource."""
        return str(self._config.node_id)

    @property
    def given_config(self) -> GatewayConfig:
        """The configuration as it would be with nothing altered."""
        return replace(self._config, **{FIELDS[name]: self._given[name] for name in FIELDS})

    def value(self, name: str) -> str:
        """Return the text in force of a setting that can be altered."""
        altered = self._altered()
        if name in altered:
            return altered[name]
        if name in self._given:
            return str(self._given[name])
        return self.given_defaults.configs.get(name, ALTERABLE[name].default)

    def _check_name(self, name: str) -> None:
        if name not in (ALL_NODES, self.node):
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"expected broker id {self.node}, got {name!r}"
            )

    def _checked(self, setting: str, text: str) -> str:
        key = ALTERABLE.get(setting)
        if key is None:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"{setting}: cannot be altered while the server runs"
            )
        try:
            parse(setting, key.type, text, key.allowed)
        except InvalidConfig as error:
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error
        return text.strip()

    def _check_all(self, name: str, settings: Mapping[str, str]) -> None:
        try:
            self._registry.check_defaults(self._defaults(self._altered({name: settings})))
        except InvalidConfig as error:
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _enforce(self, _name: str) -> None:
        for setting, field in FIELDS.items():
            setattr(self._config, field, type(self._given[setting])(self.value(setting)))
        self._registry.change_defaults(self._defaults(self._altered()))

    def _altered(self, instead: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, str]:
        """Return what is altered for this node, `instead` of what is set for a name or as it is."""
        levels = {**self._table.all, **(instead or {})}
        return {**levels.get(ALL_NODES, {}), **levels.get(self.node, {})}

    def _defaults(self, altered: Mapping[str, str]) -> TopicDefaults:
        given = self.given_defaults
        return replace(given, configs={**given.configs, **altered})
