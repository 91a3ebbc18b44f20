"""Persist pace: how often one cursor may write its acknowledgements.

Rule: at most so many writes a second, evenly spaced; a postponed write is part of the next one.
Must not know: clocks, rows. Theory: Pulsar's throttleMarkDelete.
"""

DELAY_MS_MAX = 60_000
"""A write is postponed by this at most."""


class PersistPaceState:
    """The pace of one cursor; times are monotonic milliseconds."""

    __slots__ = ("_next_ms", "_period_ms")

    def __init__(self, per_second: float | None) -> None:
        """Args: per_second: None is no limit."""
        self._period_ms = 0.0 if per_second is None else 1000 / per_second
        self._next_ms = 0.0

    def try_take(self, now_ms: int) -> bool:
        """Return whether to write now, and count that write."""
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + self._period_ms
        return True

    def due_ms(self, now_ms: int) -> int:
        """Return when to do a postponed write."""
        return now_ms + min(max(int(self._next_ms - now_ms) + 1, 0), DELAY_MS_MAX)
