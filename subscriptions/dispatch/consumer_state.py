"""Consumer state: what one consumer may still get.

Rule: permits count records, and what arrives while the consumer is blocked counts later. The last
piece that is handed out may go beyond permits and limit; nothing begins without.
Must not know: which records it has, other consumers.
"""

from kledger.subscriptions.errors import InvalidRequest
from kledger.subscriptions.model import ConsumerOptions

PERMITS_MAX = 1 << 40
"""What is asked for beyond it does not count."""

UNLIMITED = 1 << 62


class ConsumerState:
    """One consumer of one dispatcher.

    Attributes:
        number: of this consumer alone, growing.
        permits: records that it may still get; below 0 when the last piece was larger.
        unacked: what it has.
    """

    __slots__ = ("name", "number", "options", "permits", "priority_level", "unacked")

    def __init__(self, number: int, options: ConsumerOptions, *, is_limited: bool) -> None:
        """Args: is_limited: whether what it has is limited."""
        if options.unacked_max < 0:
            raise InvalidRequest(f"unacked_max is {options.unacked_max}, expected at least 0")
        self.number = number
        self.options = options
        self.name = options.name
        self.priority_level = options.priority_level
        self.permits = 0
        self.unacked = UnackedLimit.of_consumer(options.unacked_max if is_limited else 0)

    @property
    def room(self) -> int:
        """How many records it may get now; not positive: nothing."""
        return min(self.permits, self.unacked.left)

    def add_permits(self, count: int) -> None:
        """Let it get that many more. Raises InvalidRequest."""
        if count <= 0:
            raise InvalidRequest(f"{count} permits, expected at least 1")
        self.permits = min(self.permits + count, PERMITS_MAX)

    def count_delivered(self, count: int) -> None:
        """Count records that it gets."""
        self.permits -= count
        self.unacked.add(count)


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
