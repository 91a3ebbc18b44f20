"""Persist pace: how often one cursor may write its acknowledgements.

Rule: so many a second at most, evenly spaced; what is not written now is written with the next.
Must not know: clocks, what is written. Theory: Pulsar's throttleMarkDelete.
"""

DELAY_MS_MAX = 60_000
"""What waits is written after this time at the latest."""


class PersistPaceState:
    """The pace of one cursor; times are monotonic milliseconds."""

    __slots__ = ("_next_ms", "_period_ms")

    def __init__(self, per_second: float | None) -> None:
        """Args: per_second: None is no limit."""
        self._period_ms = 0.0 if per_second is None else 1000 / per_second
        self._next_ms = 0.0

    def try_take(self, now_ms: int) -> bool:
        """Tell whether to write now; if so, that is one."""
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + self._period_ms
        return True

    def due_ms(self, now_ms: int) -> int:
        """Return when to write what must wait."""
        return now_ms + min(max(int(self._next_ms - now_ms) + 1, 0), DELAY_MS_MAX)
