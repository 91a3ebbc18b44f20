"""Unacked limit state: how many records may be handed out and not acknowledged.

Rule: it blocks when the limit is reached, and only much later, at about half, it lets go; so that
who is at the limit gets many records at once instead of one for each that it acknowledges.
Must not know: which records, permits.
"""

UNLIMITED = 1 << 62


class UnackedLimit:
    """Counts records against one limit.

    Attributes:
        count: records that are not acknowledged.
        is_blocked: whether nothing more may be handed out.
    """

    __slots__ = ("_limit", "_resume_at", "count", "is_blocked")

    def __init__(self, limit: int, *, resume_at: int) -> None:
        """Make one.

        Args:
            limit: reached, it blocks; 0: it never does.
            resume_at: so many records, or fewer, and it lets go.
        """
        self._limit = limit
        self._resume_at = resume_at
        self.count = 0
        self.is_blocked = False

    @classmethod
    def of_consumer(cls, limit: int) -> "UnackedLimit":
        """Return the limit of one consumer: it lets go at half."""
        return cls(limit, resume_at=limit // 2)

    @classmethod
    def of_subscription(cls, limit: int) -> "UnackedLimit":
        """Return the limit of all consumers together: it lets go below half."""
        return cls(limit, resume_at=(limit - 1) // 2)

    @property
    def left(self) -> int:
        """How many records more it takes before it blocks; 0 while it does."""
        if self.is_blocked:
            return 0
        return self._limit - self.count if self._limit else UNLIMITED

    def add(self, count: int) -> None:
        """Records were handed out; the last ones may go beyond the limit."""
        self.count += count
        if self._limit and self.count >= self._limit:
            self.is_blocked = True

    def remove(self, count: int) -> bool:
        """Records were acknowledged, or come again; tell whether it lets go because of that."""
        self.count -= count
        assert self.count >= 0, f"{-self.count} records more came back than were handed out"
        if not self.is_blocked or self.count > self._resume_at:
            return False
        self.is_blocked = False
        return True

    def clear(self) -> None:
        """Forget what was handed out."""
        self.remove(self.count)
