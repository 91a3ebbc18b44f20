"""Fetch plan: when a fetch is answered, and how many bytes each partition may add.

Rule: nothing is read to decide whether to wait; offsets and sizes in memory are enough. The limits
are Kafka's (KIP-74): the first batch of the first partition that has one is always sent, or a
consumer whose limit is too small would never get past it.
Must not know: logs, clocks, connections.
"""

from kledger.gateway.wire.error_codes import ErrorCode

NONE = int(ErrorCode.NONE)
OFFSET_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
FENCED_LEADER_EPOCH = int(ErrorCode.FENCED_LEADER_EPOCH)
UNKNOWN_LEADER_EPOCH = int(ErrorCode.UNKNOWN_LEADER_EPOCH)
HINTED_ERRORS = frozenset((int(ErrorCode.NOT_LEADER_OR_FOLLOWER), FENCED_LEADER_EPOCH))
"""With these a response names the current leader (KIP-951)."""

NO_EPOCH = -1
ISOLATION_LEVELS = (0, 1)


def leader_epoch_error(asked: int, current: int) -> int:
    """Return the error of a leader epoch that a client knows (-1: none), for the log's epoch."""
    if asked in (NO_EPOCH, current):
        return NONE
    return FENCED_LEADER_EPOCH if asked < current else UNKNOWN_LEADER_EPOCH


def offset_error(fetch_offset: int, log_start_offset: int, high_watermark: int) -> int:
    """Return the error of a fetch offset; the end of the log has none, and no records yet."""
    return NONE if log_start_offset <= fetch_offset <= high_watermark else OFFSET_OUT_OF_RANGE


class FetchWait:
    """Whether a fetch must wait, counted partition by partition.

    Three cases end the wait: enough bytes; a partition in error; and a partition that has reached
    its own limit, so that waiting cannot add bytes of it.
    """

    __slots__ = ("_available", "_bytes_min", "has_error", "is_over")

    def __init__(self, *, max_wait_ms: int, bytes_min: int, bytes_max: int) -> None:
        """Args: bytes_max: limit of the whole response; the fetch never waits for more."""
        self._bytes_min = min(bytes_min, bytes_max)
        self._available = 0
        self.has_error = False
        """Whether some partition is in error."""
        self.is_over = max_wait_ms <= 0 or self._bytes_min <= 0

    @property
    def is_empty(self) -> bool:
        """Whether no partition has anything for this fetch."""
        return self._available == 0

    def add_error(self) -> None:
        """Count a partition that is in error."""
        self.has_error = self.is_over = True

    def add(self, available_bytes: int, partition_bytes_max: int, counted_before: int = 0) -> int:
        """Count the bytes that a partition has.

        Args:
            available_bytes: from the fetch offset to the last offset that may be read; at least 1.
            partition_bytes_max: the partition's limit; at 0 or less it can only have one batch.
            counted_before: the result of the last call for this partition.

        Returns:
            The bytes that count, at most the partition's limit.
        """
        counted = min(available_bytes, partition_bytes_max)
        self._available += counted - counted_before
        if self._available >= self._bytes_min or available_bytes >= partition_bytes_max:
            self.is_over = True
        return counted


class FetchBudget:
    """How many bytes the partitions of one response may add, in the order of the request."""

    __slots__ = ("bytes_left", "is_first")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_left = max(bytes_max, 0)
        """What may still be added."""
        self.is_first = True
        """Whether no partition has added a byte: then the next one's first batch has no limit."""

    def limit(self, partition_bytes_max: int) -> int:
        """Return how many bytes the next partition may add; the first batch may be larger."""
        return min(self.bytes_left, max(partition_bytes_max, 0))

    def can_read(self, partition_bytes_max: int) -> bool:
        """Return whether the next partition may add anything."""
        return self.is_first or self.limit(partition_bytes_max) > 0

    def spend(self, size: int) -> None:
        """Count the bytes that a partition has added."""
        if size:
            self.is_first = False
            self.bytes_left = max(self.bytes_left - size, 0)
