"""Group settings: settings of single groups, which override those of all groups.

Rule: a setting applies once its row is durable, and after a restart, whether the group exists
or not; it must lie within the limits that this node has for it.
Must not know: messages, groups themselves.
"""

from collections.abc import Mapping
from typing import Final

from kledger.gateway.api_errors import ApiError
from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.dynamic_settings import DynamicSettings
from kledger.gateway.configs.group_keys import (
    CONSUMER_HEARTBEAT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
    GROUP_KEYS,
)
from kledger.gateway.coordinator.group_config import ConsumerTimes, GroupConfig
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import TableStore
from kledger.topics import InvalidConfig
from kledger.topics.config.config_values import between, normal_text, parse

PREFIX: Final = b"gateway/group_settings/"


class GroupSettings(DynamicSettings):
    """The settings of single groups, in force."""

    def __init__(self, store: TableStore, config: GatewayConfig, groups: GroupConfig) -> None:
        super().__init__(store, PREFIX)
        self.groups = groups
        """What the timers of groups go by; the settings of a group are in it."""
        self._limits = {
            CONSUMER_SESSION_TIMEOUT: (
                config.group_consumer_min_session_timeout_ms,
                config.group_consumer_max_session_timeout_ms,
            ),
            CONSUMER_HEARTBEAT_INTERVAL: (
                config.group_consumer_min_heartbeat_interval_ms,
                config.group_consumer_max_heartbeat_interval_ms,
            ),
        }
        self.given = dict(config.kafka_items())
        self._load()

    def _check_name(self, name: str) -> None:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")

    def _validate_all(self, _name: str, settings: Mapping[str, str]) -> None:
        times = self._times(settings)
        if times.session_timeout_ms <= times.heartbeat_interval_ms:
            raise InvalidConfig(
                f"{CONSUMER_SESSION_TIMEOUT}: expected more than {times.heartbeat_interval_ms}, "
                f"which is {CONSUMER_HEARTBEAT_INTERVAL}, got {times.session_timeout_ms}"
            )

    def _validated(self, setting: str, text: str) -> str:
        key = GROUP_KEYS.get(setting)
        if key is None:
            raise InvalidConfig(f"Unknown group config name: {setting}")
        value = parse(setting, key.type, text, key.allowed)
        if setting in self._limits:
            value = parse(setting, key.type, text, between(*self._limits[setting]))
        return normal_text(value)

    def _times(self, settings: Mapping[str, str]) -> ConsumerTimes:
        session, heartbeat = CONSUMER_SESSION_TIMEOUT, CONSUMER_HEARTBEAT_INTERVAL
        return ConsumerTimes(
            int(settings.get(session, self.groups.consumer_session_timeout_ms)),
            int(settings.get(heartbeat, self.groups.consumer_heartbeat_interval_ms)),
        )

    def _apply(self, name: str) -> None:
        settings = self._table.of(name)
        if settings.keys() & self._limits.keys():
            self.groups.own_times[name] = self._times(settings)
        else:
            self.groups.own_times.pop(name, None)
