"""DeliveryWindow: how many of a client's permits are passed on to the dispatcher.

Rule: the client counts records, memory counts bytes. So that a client that gives many permits and
reads slowly does not fill the memory, no more permits are passed on than are likely to fill what
is free of the window; the size of a record is learnt from what was delivered. All permits are
passed on in the end.
Must not know: streams, dispatchers.
"""

from dataclasses import dataclass

RECORD_BYTES_FIRST = 64 * 1024
"""What a record is taken for before any was seen: too large costs a few smaller steps at first."""


@dataclass(slots=True)
class DeliveryWindow:
    """One consumer's.

    Attributes:
        bytes_max: what may wait to be written.
        permits: given by the client and not passed on yet.
        granted: passed on and not used; below 0 when more was delivered, as an entry is not split.
        waiting_bytes: delivered and not written yet.
        record_bytes: about the size of a record.
    """

    bytes_max: int
    permits: int = 0
    granted: int = 0
    waiting_bytes: int = 0
    record_bytes: int = RECORD_BYTES_FIRST

    def delivered(self, records: int, data_bytes: int) -> None:
        """Note what the dispatcher handed out."""
        self.granted -= records
        self.waiting_bytes += data_bytes
        # Grows at once and shrinks by halves: a mistake on this side costs memory.
        self.record_bytes = max(1, data_bytes // max(1, records), self.record_bytes // 2)

    def dropped(self, records: int, data_bytes: int) -> None:
        """Note what was delivered and will not be written: its permits can be passed on again."""
        self.permits += records
        self.waiting_bytes -= data_bytes

    def written(self, data_bytes: int) -> None:
        """Note what is on its way to the client."""
        self.waiting_bytes -= data_bytes

    def take_grant(self) -> int:
        """Return how many permits to pass on now.

        Nothing while half of what fits is still unused: passing on in dribbles would make the
        dispatcher read entry by entry.
        """
        free_bytes = self.bytes_max - self.waiting_bytes
        if free_bytes <= 0 or not self.permits:
            return 0
        fitting = max(1, free_bytes // self.record_bytes)
        if self.granted > 0 and self.granted > fitting // 2:
            return 0
        grant = min(self.permits, fitting - self.granted)
        self.permits -= grant
        self.granted += grant
        return grant
