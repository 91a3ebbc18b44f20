"""Consumer state: how many records one consumer may still get.

Rule: permits count records; permits that arrive while the consumer is blocked count later. A
delivery needs room for one record, and may go beyond permits and limit with the others.
Must not know: which records the consumer has, other consumers.
"""

from kledger.subscriptions.errors import InvalidRequest
from kledger.subscriptions.model import ConsumerOptions

PERMITS_HELD_MAX = 1 << 40
"""The most permits that a consumer has; more are cut off."""

UNLIMITED = 1 << 62


class ConsumerState:
    """One consumer of one dispatcher.

    Attributes:
        number: unique in the dispatcher, ascending.
        permits: records that it may still get; negative after a delivery that was larger.
        unacked: the limit of what it has not acknowledged.
    """

    __slots__ = ("name", "number", "options", "permits", "priority_level", "unacked")

    def __init__(self, number: int, options: ConsumerOptions, *, is_limited: bool) -> None:
        """Args: is_limited: whether `options.unacked_max` holds."""
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
        """How many records it may get now; none when it is not positive."""
        return min(self.permits, self.unacked.left)

    def add_permits(self, count: int) -> None:
        """Add permits. Raises InvalidRequest."""
        if count <= 0:
            raise InvalidRequest(f"{count} permits, expected at least 1")
        self.permits = min(self.permits + count, PERMITS_HELD_MAX)

    def count_delivered(self, count: int) -> None:
        """Count delivered records."""
        self.permits -= count
        self.unacked.add(count)


class UnackedLimit:
    """A limit of unacknowledged records, of one consumer or of a subscription.

    It blocks at the limit and unblocks only at about half of it, so that a consumer at its limit
    gets many records at once instead of one for each that it acknowledges.

    Attributes:
        count: how many records are unacknowledged.
        is_blocked: whether no more may be delivered.
    """

    __slots__ = ("_limit", "_resume_at", "count", "is_blocked")

    def __init__(self, limit: int, *, resume_at: int) -> None:
        """Make one.

        Args:
            limit: it blocks when this is reached; 0: it never does.
            resume_at: it unblocks at this count.
        """
        self._limit = limit
        self._resume_at = resume_at
        self.count = 0
        self.is_blocked = False

    @classmethod
    def of_consumer(cls, limit: int) -> "UnackedLimit":
        """Return the limit of one consumer: it unblocks at half."""
        return cls(limit, resume_at=limit // 2)

    @classmethod
    def of_subscription(cls, limit: int) -> "UnackedLimit":
        """Return the limit of all consumers together: it unblocks below half."""
        return cls(limit, resume_at=(limit - 1) // 2)

    @property
    def left(self) -> int:
        """How many more records may be delivered before it blocks; 0 while it is blocked."""
        if self.is_blocked:
            return 0
        return self._limit - self.count if self._limit else UNLIMITED

    def add(self, count: int) -> None:
        """Count delivered records, which may go beyond the limit."""
        self.count += count
        if self._limit and self.count >= self._limit:
            self.is_blocked = True

    def remove(self, count: int) -> bool:
        """Remove records that are acknowledged or taken back; return whether that unblocks."""
        self.count -= count
        assert self.count >= 0, f"{-self.count} records more were removed than were delivered"
        if not self.is_blocked or self.count > self._resume_at:
            return False
        self.is_blocked = False
        return True

    def clear(self) -> None:
        """Set the count to 0, and unblock."""
        self.remove(self.count)
