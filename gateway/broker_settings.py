"""Broker settings: what of this node's configuration can be altered while it runs.

Rule: an altered value holds when its row is durable, at once and after a restart. One for this node
comes before one for all nodes, and either before what was given at the start (KIP-226).
Must not know: messages, sources of settings at the start.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gateway.config import GatewayConfig
from gateway.refusals import Refused
from gateway.wire.error_codes import ErrorCode
from ledger import LedgerError, LedgerStore
from topics import CONFIG_KEYS, ConfigType, InvalidConfig, TopicDefaults, TopicRegistry
from topics.config_keys import ConfigKey
from topics.config_values import at_least, parse
from topics.results import from_ledger_error

PREFIX = b"gateway/broker_settings/"
ALL_NODES = ""
FIELDS: Final = {
    name: field
    for field in ("max_connections", "max_connections_per_ip", "message_max_bytes")
    for name in (field.replace("_", "."),)
}
"""Settings of the gateway among them, by name."""


def _alterable() -> dict[str, ConfigKey]:
    """The first broker-level name of each setting that topics have, and limits of connections."""
    keys = {
        name: ConfigKey(name, ConfigType.INT, "", "", at_least(0))
        for name in ("max.connections", "max.connections.per.ip")
    }
    for key in CONFIG_KEYS.values():
        if key.synonyms:
            name = key.synonyms[0].name
            keys[name] = ConfigKey(name, key.type, key.default, key.documentation, key.allowed)
    return keys


ALTERABLE: Final = _alterable()


class BrokerSettings:
    """The altered settings of one server, in force."""

    def __init__(self, store: LedgerStore, registry: TopicRegistry, config: GatewayConfig) -> None:
        self._store = store
        self._registry = registry
        self._config = config
        self._given = {name: getattr(config, field) for name, field in FIELDS.items()}
        self.given_defaults: TopicDefaults = registry.defaults
        self._altered: dict[str, dict[str, str]] = {ALL_NODES: {}, self.node: {}}
        for key, row in store.scan_rows(PREFIX):
            self._altered[key[len(PREFIX) :].decode()] = json.loads(row)
        self._enforce()

    @property
    def node(self) -> str:
        """The name of this node as a resource."""
        return str(self._config.node_id)

    @property
    def given_config(self) -> GatewayConfig:
        """The configuration as it would be with nothing altered."""
        return replace(self._config, **{FIELDS[name]: self._given[name] for name in FIELDS})

    def of(self, name: str) -> Mapping[str, str]:
        """Return what was altered for this node, or for all.

        Raises:
            Refused: INVALID_REQUEST: another node is meant.
        """
        if name not in (ALL_NODES, self.node):
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"expected broker id {self.node}, got {name!r}"
            )
        return self._altered[name]

    def value(self, name: str) -> str:
        """Return the text in force of a setting that can be altered."""
        for level in (self.node, ALL_NODES):
            if name in self._altered[level]:
                return self._altered[level][name]
        if name in self._given:
            return str(self._given[name])
        return self.given_defaults.configs.get(name, ALTERABLE[name].default)

    async def alter(
        self, name: str, changes: Mapping[str, str | None], *, replace: bool, validate_only: bool
    ) -> None:
        """Change settings of this node, or of all; None takes one back.

        Raises:
            Refused: nothing was changed.
            TopicsError: nothing was changed.
        """
        altered = {} if replace else dict(self.of(name))
        for key, text in changes.items():
            if text is None:
                altered.pop(key, None)
            else:
                altered[key] = _checked(key, text)
        before = self.of(name)
        self._altered[name] = altered
        try:
            self._registry.check_defaults(self._defaults())
        except InvalidConfig as error:
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error
        finally:
            self._altered[name] = dict(before)
        if validate_only:
            return
        row = json.dumps(altered).encode() if altered else None
        try:
            await self._store.put_rows([(PREFIX + name.encode(), row)])
        except LedgerError as error:
            raise from_ledger_error(error) from error
        self._altered[name] = altered
        self._enforce()

    def _enforce(self) -> None:
        for name, field in FIELDS.items():
            setattr(self._config, field, int(self.value(name)))
        self._registry.change_defaults(self._defaults())

    def _defaults(self) -> TopicDefaults:
        given = self.given_defaults
        altered = self._altered[ALL_NODES] | self._altered[self.node]
        return replace(given, configs={**given.configs, **altered})


def _checked(name: str, text: str) -> str:
    key = ALTERABLE.get(name)
    if key is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name}: cannot be altered while the server runs")
    try:
        parse(name, key.type, text, key.allowed)
    except InvalidConfig as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error
    return text.strip()
