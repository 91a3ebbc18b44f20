"""DeliveryWindow: how many of a consumer's permits are passed on to the dispatcher.

Rule: the client counts records, memory counts bytes. So that a client that gives many permits and
reads slowly does not fill the memory, no more permits are passed on than are likely to fill what
is free of the window; the size of a record is learnt from what was delivered. All permits are
passed on in the end.

All consumers together have one limit (`DeliveryTotal`). Each may fill its part of it; when the
total is reached, a consumer is passed one permit at a time, and only when nothing is under way to
it. So each one always goes on as fast as its client reads, and none waits for another.
Must not know: streams, dispatchers.
"""

from dataclasses import dataclass

RECORD_BYTES_FIRST = 64 * 1024
"""What a record is taken for before any was seen: too large costs a few smaller steps at first."""
PART_BYTES_MIN = 64 * 1024
"""What each consumer may have waiting before the total is reached, however many there are."""


@dataclass(slots=True)
class DeliveryTotal:
    """What all consumers of one server have under way.

    Attributes:
        bytes_max: what may wait to be written, of all of them.
        waiting_bytes: delivered and not written yet.
        windows: how many consumers there are.
    """

    bytes_max: int
    waiting_bytes: int = 0
    windows: int = 0

    @property
    def is_reached(self) -> bool:
        """Whether more waits to be written than should."""
        return self.waiting_bytes >= self.bytes_max

    @property
    def part_bytes(self) -> int:
        """How much one of the consumers may have waiting."""
        return max(PART_BYTES_MIN, self.bytes_max // max(1, self.windows))


@dataclass(slots=True)
class DeliveryWindow:
    """One consumer's.

    Attributes:
        bytes_max: what may wait to be written.
        total: of all consumers; this one counts in it until it is closed.
        permits: given by the client and not passed on yet.
        granted: passed on and not used; below 0 when more was delivered, as an entry is not split.
        waiting_bytes: delivered and not written yet.
        record_bytes: about the size of a record.
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
        """Give back what this consumer takes of the total; may be repeated."""
        if not self.is_closed:
            self.is_closed = True
            self.total.windows -= 1
            self.total.waiting_bytes -= self.waiting_bytes

    def delivered(self, records: int, data_bytes: int) -> None:
        """Note what the dispatcher handed out."""
        self.granted -= records
        self._add_waiting(data_bytes)
        # Grows at once and shrinks by halves: a mistake on this side costs memory.
        self.record_bytes = max(1, data_bytes // max(1, records), self.record_bytes // 2)

    def dropped(self, records: int, data_bytes: int) -> None:
        """Note what was delivered and will not be written: its permits can be passed on again."""
        self.permits += records
        self._add_waiting(-data_bytes)

    def written(self, data_bytes: int) -> None:
        """Note what is on its way to the client."""
        self._add_waiting(-data_bytes)

    def take_grant(self) -> int:
        """Return how many permits to pass on now.

        Nothing while half of what fits is still unused: passing on in dribbles would make the
        dispatcher read entry by entry.
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
        grant = min(self.permits, fitting - self.granted)
        self.permits -= grant
        self.granted += grant
        return grant

    def _add_waiting(self, data_bytes: int) -> None:
        self.waiting_bytes += data_bytes
        if not self.is_closed:
            self.total.waiting_bytes += data_bytes
