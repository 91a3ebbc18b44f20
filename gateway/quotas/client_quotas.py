"""Quotas: the quotas of one server, stored and charged.

Rule: a quota takes effect when its row is durable, and after a restart. `quota_state` decides how
long a client waits. A client is a principal with a client id; the principal's name is the user of a
quota (KIP-55), and all clients that did not authenticate are the user ANONYMOUS.
Must not know: how connections wait, messages.
"""

import json
from collections.abc import Mapping

from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.settings_table import SettingsTable
from kledger.gateway.quotas.quota_state import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    QuotaState,
    QuotaWindows,
)
from kledger.ledger import TableStore
from kledger.runtime.clock import Clock
from kledger.security.principal import Principal

PREFIX = b"gateway/quotas/"
MS_PER_PERCENT = 10
"""One percent of a second."""
BYTES_MAX = 2**31 - 1


class ClientQuotas:
    """The quotas of all clients, and their use."""

    def __init__(self, tables: TableStore, clock: Clock, config: GatewayConfig) -> None:
        self._table = SettingsTable[float](tables, PREFIX, self._apply)
        self.changing = tables.change_lock()
        """Under it quotas are decided on and put."""
        self._clock = clock
        self._sample_ms = config.quota_window_size_seconds * 1_000
        self.state = QuotaState(_windows(config))
        self._table.load()

    async def put(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Set all quotas of an entity; an empty set removes the entity.

        Raises:
            Refused: POLICY_VIOLATION: there are quotas of too many entities.
            TopicsError: nothing was changed.
        """
        await self._table.put(json.dumps(entity), quotas)

    def _apply(self, name: str) -> None:
        entity = tuple((kind, of) for kind, of in json.loads(name))
        self.state.apply(entity, self._table.of(name))

    def charge_produce(self, principal: Principal, client_id: str, size: int) -> int:
        """Count bytes of a Produce request; return how many milliseconds to wait."""
        now_ms = self._clock.monotonic_ms()
        return self.state.charge(PRODUCER_BYTE_RATE, principal.name, client_id, size, now_ms)

    def admit_fetch(self, principal: Principal, client_id: str, size: int) -> int:
        """Count bytes of records before they leave in a Fetch response.

        Returns:
            0, or how many milliseconds to wait: then they must not be sent, and are not counted.
        """
        now_ms = self._clock.monotonic_ms()
        return self.state.admit(CONSUMER_BYTE_RATE, principal.name, client_id, size, now_ms)

    def charge_fetch(self, principal: Principal, client_id: str, size: int) -> int:
        """Count the other bytes of a Fetch response; return how many milliseconds to wait."""
        now_ms = self._clock.monotonic_ms()
        return self.state.charge(CONSUMER_BYTE_RATE, principal.name, client_id, size, now_ms)

    def fetch_bytes_max(self, principal: Principal, client_id: str) -> int:
        """Return how many bytes a Fetch response may have so that the quota can admit it."""
        window = self.state.window_of(CONSUMER_BYTE_RATE, principal.name, client_id)
        return BYTES_MAX if window is None else min(int(window), BYTES_MAX)

    def charge_time(self, principal: Principal, client_id: str, used_ms: int) -> int:
        """Count the processing time of a request; return how many milliseconds to wait.

        Whole milliseconds suffice: a short request crosses a millisecond's border as often as it is
        long, so the sum is right. A client waits at most one of the window's samples at a time.
        """
        now_ms, percents = self._clock.monotonic_ms(), used_ms / MS_PER_PERCENT
        wait_ms = self.state.charge(REQUEST_PERCENTAGE, principal.name, client_id, percents, now_ms)
        return min(wait_ms, self._sample_ms)

    def charge_mutations(self, principal: Principal, client_id: str, count: int) -> int:
        """Count created or deleted partitions; return how many milliseconds to wait."""
        now_ms = self._clock.monotonic_ms()
        return self.state.charge(CONTROLLER_MUTATION_RATE, principal.name, client_id, count, now_ms)

    def admit_connection(self, host: str) -> int:
        """Count a connection of an address.

        Returns:
            0, or how many milliseconds too early it is: then it is not counted.
        """
        return self.state.admit_connection(host, self._clock.monotonic_ms())


def _windows(config: GatewayConfig) -> QuotaWindows:
    """Return the seconds of Kafka's samples, of rates without the one that is being filled."""
    return QuotaWindows(
        rate_s=max(config.quota_window_num - 1, 1) * config.quota_window_size_seconds,
        mutation_s=config.controller_quota_window_num * config.controller_quota_window_size_seconds,
    )
