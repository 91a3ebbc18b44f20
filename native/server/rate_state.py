"""Rate state: how often something happened in a second, over the last minute.

Rule: counts stand in a ring of short spans; what has happened longer ago than the window counts no
more. A window that has not been full yet counts as full, so that a rate never begins with a peak.
Must not know: clocks, what is counted.
"""

BUCKET_MS = 5_000
BUCKET_COUNT = 12
WINDOW_MS = BUCKET_MS * BUCKET_COUNT


class RateState:
    """The rate of one thing."""

    __slots__ = ("_counts", "_newest")

    def __init__(self) -> None:
        self._counts = [0] * BUCKET_COUNT
        self._newest = 0

    def note(self, count: int, now_ms: int) -> None:
        """Count what has just happened."""
        self._advance(now_ms)
        self._counts[self._newest % BUCKET_COUNT] += count

    def per_second(self, now_ms: int) -> float:
        """Return the rate over the window that ends now."""
        self._advance(now_ms)
        return sum(self._counts) * 1_000 / WINDOW_MS

    def _advance(self, now_ms: int) -> None:
        """Empty the spans that have begun since the last look."""
        current = now_ms // BUCKET_MS
        for span in range(max(self._newest + 1, current - BUCKET_COUNT + 1), current + 1):
            self._counts[span % BUCKET_COUNT] = 0
        self._newest = max(self._newest, current)
