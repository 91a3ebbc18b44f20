"""DeliveryWindow: decides how many of a consumer's permits the dispatcher gets.

Rule: permits count records, memory counts bytes. So that a client with many permits that reads
slowly does not fill the memory, the dispatcher gets only as many permits as are likely to fill the
free part of the window; the size of a record is estimated from earlier deliveries. In the end it
gets all permits.

All consumers together have one limit (`DeliveryTotal`). Each may fill its part of it; when the
total is reached, a consumer gets one permit at a time, and only when no delivery waits for it. So
each consumer proceeds as fast as its client reads, and none waits for another.
Must not know: streams, dispatchers.
"""

from dataclasses import dataclass

from kledger.native.broker import PERMITS_PER_CALL_MAX

RECORD_BYTES_FIRST = 64 * 1024
"""The estimate before the first delivery: a large one only makes the first grants smaller."""
PART_BYTES_MIN = 64 * 1024
"""The smallest part of a consumer, however many there are."""


@dataclass(slots=True)
class DeliveryTotal:
    """The unwritten deliveries of all consumers of one server.

    Attributes:
        bytes_max: the limit of `waiting_bytes`.
        waiting_bytes: delivered and not written yet.
        windows: the number of consumers.
    """

    bytes_max: int
    waiting_bytes: int = 0
    windows: int = 0

    @property
    def is_reached(self) -> bool:
        """Whether the limit is reached."""
        return self.waiting_bytes >= self.bytes_max

    @property
    def part_bytes(self) -> int:
        """How many bytes may wait for one consumer."""
        return max(PART_BYTES_MIN, self.bytes_max // max(1, self.windows))


@dataclass(slots=True)
class DeliveryWindow:
    """The window of one consumer.

    Attributes:
        bytes_max: the limit of `waiting_bytes`.
        total: of all consumers; it includes this window until `close`.
        permits: received from the client and not granted to the dispatcher yet.
        granted: granted and not used; negative if more was delivered, as an entry is not split.
        waiting_bytes: delivered and not written yet.
        record_bytes: the estimated size of a record.
    """

    bytes_max: int
    total: DeliveryTotal
    permits: int = 0
    granted: int = 0
    waiting_bytes: int = 0
    record_bytes: int = RECORD_BYTES_FIRST
    is_closed: bool = False

    def __post_init__(self) -> None:
        self.total.windows += 1

    def close(self) -> None:
        """Remove this consumer from the total; may be repeated."""
        if not self.is_closed:
            self.is_closed = True
            self.total.windows -= 1
            self.total.waiting_bytes -= self.waiting_bytes

    def delivered(self, records: int, data_bytes: int) -> None:
        """Note a delivery of the dispatcher."""
        self.granted -= records
        self._add_waiting(data_bytes)
        # Grows at once and shrinks by halves: a low estimate would cost memory.
        self.record_bytes = max(1, data_bytes // max(1, records), self.record_bytes // 2)

    def dropped(self, records: int, data_bytes: int) -> None:
        """Note a delivery that will not be written; its permits can be granted again."""
        self.permits += records
        self._add_waiting(-data_bytes)

    def written(self, data_bytes: int) -> None:
        """Note that a delivery was written to the client."""
        self._add_waiting(-data_bytes)

    def take_grant(self) -> int:
        """Return how many permits to grant now.

        0 while half of what fits is unused: small grants would make the dispatcher read entry by
        entry.
        """
        free_bytes = min(self.bytes_max, self.total.part_bytes) - self.waiting_bytes
        if free_bytes <= 0 or not self.permits:
            return 0
        fitting = max(1, free_bytes // self.record_bytes)
        if self.total.is_reached:
            if self.waiting_bytes:
                return 0
            fitting = 1
        if self.granted > 0 and self.granted > fitting // 2:
            return 0
        grant = min(self.permits, fitting - self.granted, PERMITS_PER_CALL_MAX)
        self.permits -= grant
        self.granted += grant
        return grant

    def _add_waiting(self, data_bytes: int) -> None:
        self.waiting_bytes += data_bytes
        if not self.is_closed:
            self.total.waiting_bytes += data_bytes
