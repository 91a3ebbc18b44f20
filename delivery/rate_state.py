"""Rate state: events per second, over the last minute.

Rule: counts are kept in a ring of buckets, and a bucket older than the window does not count. The
first window counts as a whole one, so that a rate does not begin with a peak.
Must not know: clocks, what is counted.
"""

BUCKET_MS = 5_000
BUCKET_COUNT = 12
WINDOW_MS = BUCKET_MS * BUCKET_COUNT


class RateState:
    """The rate of one kind of event."""

    __slots__ = ("_counts", "_newest")

    def __init__(self) -> None:
        self._counts = [0] * BUCKET_COUNT
        self._newest = 0

    def add(self, count: int, now_ms: int) -> None:
        """Count events that happen now."""
        self._advance(now_ms)
        self._counts[self._newest % BUCKET_COUNT] += count

    def per_second(self, now_ms: int) -> float:
        """Return the rate over the window that ends now."""
        self._advance(now_ms)
        return sum(self._counts) * 1_000 / WINDOW_MS

    def _advance(self, now_ms: int) -> None:
        """Empty the buckets that have begun since the last call."""
        current = now_ms // BUCKET_MS
        for bucket in range(max(self._newest + 1, current - BUCKET_COUNT + 1), current + 1):
            self._counts[bucket % BUCKET_COUNT] = 0
        self._newest = max(self._newest, current)
