"""Group settings: what single groups have instead of the settings of all.

Rule: a setting holds when its row is durable, at once and after a restart, whether the group exists
or not; it must lie within the limits that this node has for it.
Must not know: messages, groups themselves.
"""

from collections.abc import Mapping
from typing import Final

from gateway.config import GatewayConfig
from gateway.coordinator.group_config import ConsumerTimes, GroupConfig
from gateway.group_keys import CONSUMER_HEARTBEAT_INTERVAL, CONSUMER_SESSION_TIMEOUT, GROUP_KEYS
from gateway.refusals import Refused
from gateway.settings_table import SettingsTable, changed, normal_text
from gateway.wire.error_codes import ErrorCode
from ledger import LedgerStore
from topics import InvalidConfig
from topics.config_values import between, parse

PREFIX: Final = b"gateway/group_settings/"


class GroupSettings:
    """The settings of single groups, in force."""

    def __init__(self, store: LedgerStore, config: GatewayConfig, groups: GroupConfig) -> None:
        self._table = SettingsTable[str](store, PREFIX)
        self._groups = groups
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
        for name in self._table.all:
            self._enforce(name)

    @property
    def all(self) -> Mapping[str, Mapping[str, str]]:
        """What is set, by the id of the group."""
        return self._table.all

    def of(self, name: str) -> Mapping[str, str]:
        """Return what is set for a group.

        Raises:
            Refused: INVALID_REQUEST: the name is empty.
        """
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "there are no settings for all groups at once")
        return self._table.of(name)

    async def alter(
        self, name: str, changes: Mapping[str, str | None], *, replace: bool, validate_only: bool
    ) -> None:
        """Change settings of a group, or only check the changes; None takes one back.

        Raises:
            Refused: nothing was changed.
            TopicsError: nothing was changed.
        """
        after = changed(self.of(name), changes, self._checked, replace=replace)
        times = self._times(after)
        if times.session_timeout_ms <= times.heartbeat_interval_ms:
            raise InvalidConfig(
                f"{CONSUMER_SESSION_TIMEOUT}: expected more than {times.heartbeat_interval_ms}, "
                f"which is {CONSUMER_HEARTBEAT_INTERVAL}, got {times.session_timeout_ms}"
            )
        if not validate_only:
            await self._table.put(name, after)
            self._enforce(name)

    def _checked(self, name: str, text: str) -> str:
        key = GROUP_KEYS.get(name)
        if key is None:
            raise InvalidConfig(f"unknown group config name: {name}")
        value = parse(name, key.type, text, key.allowed)
        if name in self._limits:
            value = parse(name, key.type, text, between(*self._limits[name]))
        return normal_text(value)

    def _times(self, settings: Mapping[str, str]) -> ConsumerTimes:
        session, heartbeat = CONSUMER_SESSION_TIMEOUT, CONSUMER_HEARTBEAT_INTERVAL
        return ConsumerTimes(
            int(settings.get(session, self._groups.consumer_session_timeout_ms)),
            int(settings.get(heartbeat, self._groups.consumer_heartbeat_interval_ms)),
        )

    def _enforce(self, name: str) -> None:
        settings = self._table.of(name)
        if settings.keys() & self._limits.keys():
            self._groups.own_times[name] = self._times(settings)
        else:
            self._groups.own_times.pop(name, None)
