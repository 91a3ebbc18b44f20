"""Quotas: the quotas of one server, stored, and how they are charged.

Rule: a quota holds when its row is durable, at once and after a restart. How long to wait is
decided by `quota_state`; nobody authenticates, so every client is the same user.
Must not know: how clients are made to wait, messages.
"""

import json
from collections.abc import Mapping

from gateway.quota_state import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    QuotaState,
)
from gateway.refusals import ANONYMOUS
from gateway.settings_table import SettingsTable
from ledger import LedgerStore
from runtime.clock import Clock

PREFIX = b"gateway/quotas/"
MS_PER_PERCENT = 10
"""One percent of a second."""
REQUEST_THROTTLE_MS_MAX = 1_000
"""Who used too much time waits for one of Kafka's samples at most, and again if need be."""


class Quotas:
    """What clients may use."""

    def __init__(self, store: LedgerStore, clock: Clock) -> None:
        self._table = SettingsTable[float](store, PREFIX)
        self._clock = clock
        self.state = QuotaState()
        for text, quotas in self._table.all.items():
            self.state.apply(tuple((kind, name) for kind, name in json.loads(text)), quotas)

    async def put(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Set all quotas of an entity; none: the entity is forgotten.

        Raises:
            Refused: POLICY_VIOLATION: there are quotas of too many entities.
            TopicsError: nothing was changed.
        """
        await self._table.put(json.dumps(entity), quotas)
        self.state.apply(entity, quotas)

    def charge_produce(self, client_id: str, size: int) -> int:
        """Count bytes of a Produce request; return how many milliseconds to wait."""
        now_ms = self._clock.monotonic_ms()
        return self.state.charge(PRODUCER_BYTE_RATE, ANONYMOUS, client_id, size, now_ms)

    def charge_fetch(self, client_id: str, size: int) -> int:
        """Count bytes of a Fetch response; return how many milliseconds to wait."""
        now_ms = self._clock.monotonic_ms()
        return self.state.charge(CONSUMER_BYTE_RATE, ANONYMOUS, client_id, size, now_ms)

    def charge_time(self, client_id: str, used_ms: int) -> int:
        """Count time in which a request was worked on; return how many milliseconds to wait.

        Whole milliseconds suffice: that a short piece of work crosses the border of one is as
        likely as it is long, so the sum is right.
        """
        now_ms, percents = self._clock.monotonic_ms(), used_ms / MS_PER_PERCENT
        wait_ms = self.state.charge(REQUEST_PERCENTAGE, ANONYMOUS, client_id, percents, now_ms)
        return min(wait_ms, REQUEST_THROTTLE_MS_MAX)
