"""Consumer state: what one consumer may still get.

Rule: permits count records, and what arrives while the consumer is blocked counts later. The last
piece that is handed out may go beyond permits and limit; nothing begins without.
Must not know: which records it has, other consumers.
"""

from kledger.subscriptions.dispatch.unacked_limit_state import UnackedLimit
from kledger.subscriptions.errors import InvalidRequest
from kledger.subscriptions.model import ConsumerOptions

PERMITS_MAX = 1 << 40
"""What is asked for beyond it does not count."""


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
