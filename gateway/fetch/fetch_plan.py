"""Fetch plan: when a fetch is answered, and how many bytes each partition may add.

Rule: nothing is read to find out whether to wait; what a partition has is known by its offsets and
by sizes in memory. The limits are Kafka's (KIP-74): the first batch of the first partition that has
one is always delivered, or a consumer with too small a limit would stand still for ever.
Must not know: logs, clocks, connections.
"""

from kledger.gateway.wire.error_codes import ErrorCode

NONE = int(ErrorCode.NONE)
OFFSET_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
FENCED_LEADER_EPOCH = int(ErrorCode.FENCED_LEADER_EPOCH)
UNKNOWN_LEADER_EPOCH = int(ErrorCode.UNKNOWN_LEADER_EPOCH)

NO_EPOCH = -1
ISOLATION_LEVELS = (0, 1)


def leader_epoch_error(asked: int, current: int) -> int:
    """Compare the leader epoch a client knows (-1: it does not say) with that of the log."""
    if asked in (NO_EPOCH, current):
        return NONE
    return FENCED_LEADER_EPOCH if asked < current else UNKNOWN_LEADER_EPOCH


def offset_error(fetch_offset: int, log_start_offset: int, high_watermark: int) -> int:
    """Say whether an offset can be fetched; the end of the log can, and has nothing yet."""
    return NONE if log_start_offset <= fetch_offset <= high_watermark else OFFSET_OUT_OF_RANGE


class FetchWait:
    """Whether a fetch has to wait, counted partition by partition.

    Three cases end the waiting: enough bytes, a partition in error, and a partition that has
    reached its own limit, since waiting could not bring more of it.
    """

    __slots__ = ("_available", "_bytes_min", "is_over")

    def __init__(self, *, max_wait_ms: int, bytes_min: int, bytes_max: int) -> None:
        """Args: bytes_max: limit of the whole answer; more than that is not worth waiting for."""
        self._bytes_min = min(bytes_min, bytes_max)
        self._available = 0
        self.is_over = max_wait_ms <= 0 or self._bytes_min <= 0

    @property
    def is_empty(self) -> bool:
        """Whether no partition has anything for this fetch."""
        return self._available == 0

    def add_error(self) -> None:
        """Count a partition that is in error."""
        self.is_over = True

    def add(self, available_bytes: int, partition_bytes_max: int, counted_before: int = 0) -> int:
        """Count what a partition has.

        Args:
            available_bytes: from the offset asked for up to what may be read; more than none.
            partition_bytes_max: the partition's limit; with none, one batch is all there can be.
            counted_before: what this returned for the partition the last time.

        Returns:
            The bytes that count: never more than the partition's limit.
        """
        counted = min(available_bytes, partition_bytes_max)
        self._available += counted - counted_before
        if self._available >= self._bytes_min or available_bytes >= partition_bytes_max:
            self.is_over = True
        return counted


class FetchBudget:
    """How many bytes the partitions of one answer may add, in the order of the request."""

    __slots__ = ("bytes_left", "is_first")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_left = max(bytes_max, 0)
        """What may still be added."""
        self.is_first = True
        """Whether no partition has added a byte: the next one's first batch goes in anyway."""

    def limit(self, partition_bytes_max: int) -> int:
        """Return how much the next partition may add; the first batch may be larger."""
        return min(self.bytes_left, max(partition_bytes_max, 0))

    def can_read(self, partition_bytes_max: int) -> bool:
        """Return whether there is any use in reading the next partition."""
        return self.is_first or self.limit(partition_bytes_max) > 0

    def spend(self, size: int) -> None:
        """Count what a partition has added."""
        if size:
            self.is_first = False
            self.bytes_left = max(self.bytes_left - size, 0)
