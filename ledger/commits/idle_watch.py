"""Idle watch: whether a store has something to do besides its background work.

Rule: a store is idle when nothing has been submitted for IDLE_MS, as far as calls have seen; what
background work submits does not count.
Must not know: what is submitted, what background work does.
"""

from kledger.ledger.commits.committer import Committer
from kledger.runtime.clock import Clock

IDLE_MS = 1000
"""How long after the last append a store is idle."""


class IdleWatch:
    """Of one store."""

    def __init__(self, committer: Committer, clock: Clock) -> None:
        """Watch a committer; until the first call has seen otherwise, the store is idle."""
        self._committer = committer
        self._clock = clock
        self._ticks_seen = 0
        self._busy_until_ms = clock.monotonic_ms()

    def is_idle(self) -> bool:
        """Return whether nothing was submitted for IDLE_MS, as seen by calls."""
        now_ms, ticks = self._clock.monotonic_ms(), self._committer.tick_count
        if ticks != self._ticks_seen:
            self._ticks_seen = ticks
            self._busy_until_ms = now_ms + IDLE_MS
        return now_ms >= self._busy_until_ms
