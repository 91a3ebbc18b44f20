"""Broker settings: the part of this node's configuration that can be altered at runtime.

Rule: an altered value applies once its row is durable, and after a restart. One for this node
overrides one for all nodes, and either overrides the value given at the start (KIP-226). What Kafka
can alter is accepted, also where it has no effect; a name unknown to Kafka is kept as it is.
Must not know: messages, sources of settings at the start.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kledger.gateway.api_errors import ApiError
from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.broker_keys import (
    MIN_INSYNC_REPLICAS,
    UpdateMode,
    find_key,
)
from kledger.gateway.configs.dynamic_settings import DynamicSettings
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import TableStore
from kledger.topics import CONFIG_KEYS, ConfigType, InvalidConfig, TopicDefaults, TopicRegistry
from kledger.topics.config.config_values import parse

PREFIX = b"gateway/broker_settings/"
ALL_NODES = ""
FIELDS: Final = {
    name: field
    for field in (
        "log_cleaner_backoff_ms",
        "log_cleaner_dedupe_buffer_size",
        "log_cleaner_io_max_bytes_per_second",
        "log_cleaner_threads",
        "max_connections",
        "max_connections_per_ip",
        "max_connections_per_ip_overrides",
        "message_max_bytes",
    )
    for name in (field.replace("_", "."),)
}
"""Settings of the gateway among them, by name."""
PRODUCER_ID_EXPIRATION: Final = "producer.id.expiration.ms"
ADVERTISED_LISTENERS: Final = "advertised.listeners"
LISTENERS, PROTOCOL_MAP = "listeners", "listener.security.protocol.map"
FIXED: Final = (LISTENERS, PROTOCOL_MAP)
"""What Kafka can alter, and this server only to the value that holds."""
_TOPIC_NAMES: Final = frozenset(
    synonym.name for key in CONFIG_KEYS.values() for synonym in key.synonyms
)


class BrokerSettings(DynamicSettings):
    """The altered settings of one server, in force."""

    def __init__(
        self, tables: TableStore, registry: TopicRegistry, config: GatewayConfig, log_dir: str
    ) -> None:
        super().__init__(tables, PREFIX)
        self._registry = registry
        self._config = config
        self._static = {name: getattr(config, field) for name, field in FIELDS.items()}
        self.static_defaults: TopicDefaults = registry.defaults
        self.fixed_values: dict[str, str] = {"log.dir": log_dir, "log.dirs": log_dir}
        """What was given at the start to others than the gateway, by Kafka's name."""
        self._load()
        self._apply(self.node)  # also where nothing is stored

    @property
    def node(self) -> str:
        """The name of this node as a resource."""
        return str(self._config.node_id)

    @property
    def static_config(self) -> GatewayConfig:
        """The configuration as it would be with nothing altered."""
        return replace(self._config, **{FIELDS[name]: self._static[name] for name in FIELDS})

    def of(self, name: str) -> Mapping[str, str]:
        """Return what is set for this node, or for all nodes.

        Of all nodes `min.insync.replicas` is always set: Apache Kafka 4.1 and later do so when the
        storage is formatted, from the value of the configuration (KIP-966).
        """
        settings = super().of(name)
        return {**self._formatted(), **settings} if name == ALL_NODES else settings

    def value(self, name: str) -> str:
        """Return the text in force of a setting that can be altered; empty where there is none."""
        altered = self._altered()
        if name in altered:
            return altered[name]
        if name in self._static:
            return str(self._static[name])
        key = find_key(name)
        default = key.default if key is not None else None
        return self.static_defaults.configs.get(name, default or "")

    def _check_name(self, name: str) -> None:
        if name not in (ALL_NODES, self.node):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self.node} or empty string, but received {name}",
            )

    def _validated(self, setting: str, text: str) -> str:
        key = find_key(setting)
        if key is None:
            return text
        if key.mode is UpdateMode.READ_ONLY:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{setting}]"
            )
        if key.mode is UpdateMode.PER_LISTENER and setting == key.name:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the "
                f"listener prefix: [{setting}]",
            )
        try:
            parse(setting, key.type, text, key.allowed)
        except InvalidConfig as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if key.type is ConfigType.CLASS and text.strip() != key.default:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {text} for configuration {setting}: "
                f"Class {text} could not be found.",
            )
        if setting in FIXED and text.strip() != self.fixed(setting):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {text} for configuration {setting}: expected "
                f"{self.fixed(setting)}, which is fixed while the server runs",
            )
        return text.strip()

    def fixed(self, name: str) -> str:
        """Return the value of one of `FIXED`."""
        key = find_key(name)
        default = key.default if key is not None else None
        return self.fixed_values.get(name, default or "")

    def _validate_all(self, name: str, settings: Mapping[str, str]) -> None:
        if name == ALL_NODES:
            self._check_all_nodes(settings)
        elif settings.get(MIN_INSYNC_REPLICAS) != self._table.of(name).get(MIN_INSYNC_REPLICAS):
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled.",
            )
        try:
            self._registry.check_defaults(self._defaults(self._altered({name: settings})))
        except InvalidConfig as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _check_all_nodes(self, settings: Mapping[str, str]) -> None:
        """Refuse what only one broker can have, and to take back what all have."""
        of_one = [
            name
            for name in settings
            if (key := find_key(name)) is not None
            and key.mode in (UpdateMode.PER_BROKER, UpdateMode.PER_LISTENER)
        ]
        if of_one:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "Cannot update these configs at default cluster level, broker id must be "
                f"specified: [{', '.join(of_one)}]",
            )
        if MIN_INSYNC_REPLICAS not in settings:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled.",
            )

    def _apply(self, _name: str) -> None:
        for setting, field in FIELDS.items():
            setattr(self._config, field, type(self._static[setting])(self.value(setting)))
        self._registry.change_defaults(self._defaults(self._altered()))

    def _altered(self, instead: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, str]:
        """Return what is altered for this node, `instead` of what is set for a name or as it is."""
        levels = {**self._table.all, **(instead or {})}
        return {**self._formatted(), **levels.get(ALL_NODES, {}), **levels.get(self.node, {})}

    def _formatted(self) -> dict[str, str]:
        """Return the values for all nodes that no request has altered yet."""
        return {MIN_INSYNC_REPLICAS: self.static_defaults.configs.get(MIN_INSYNC_REPLICAS, "1")}

    def _defaults(self, altered: Mapping[str, str]) -> TopicDefaults:
        given = self.static_defaults
        of_topics = {name: text for name, text in altered.items() if name in _TOPIC_NAMES}
        expiration = altered.get(PRODUCER_ID_EXPIRATION, given.producer_id_expiration_ms)
        return replace(
            given,
            configs={**given.configs, **of_topics},
            producer_id_expiration_ms=int(expiration),
        )
