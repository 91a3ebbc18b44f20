"""Unsent state: the response bytes of all connections that their peers have not taken yet.

Rule: there is one limit for all of them together. Large responses share its first half, the less of
that is left the less one fetch may add; the other half is for small ones, one at a time for each
connection. So those who read get something while those who do not hold what they got. When it is
full, whoever holds most and has taken nothing for a while gives way.
Must not know: sockets, clocks, what a response is.
"""

from typing import Generic, TypeVar

from kledger.gateway.config import MIB

FREE_PARTS = 4
"""One fetch may add this part of what is left of the first half."""
FETCH_BYTES_MIN = 64 * 1024
"""What one fetch may always add while there is any room."""
STALLED_MS = 2_000
"""Who has taken nothing for so long gives way when there is no room."""
FALL_BYTES_MIN = 64 * MIB
"""A fall by less than this is not worth giving memory back to the operating system."""

Holder = TypeVar("Holder")


class _Holding:
    """What one connection holds.

    Attributes:
        size: bytes that its peer has not taken.
        taken: bytes that it has taken since it is connected.
        progressed_ms: when it was last seen to have taken some, or began to hold.
    """

    __slots__ = ("progressed_ms", "size", "taken")

    def __init__(self, taken: int, now_ms: int) -> None:
        self.size, self.taken, self.progressed_ms = 0, taken, now_ms


class UnsentState(Generic[Holder]):
    """All connections that hold something; times are monotonic milliseconds.

    Attributes:
        total: bytes that are not taken, and room that was reserved.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._holdings: dict[Holder, _Holding] = {}
        self._reserved: dict[Holder, int] = {}
        self._peak = 0

    @property
    def holders(self) -> list[Holder]:
        """Those that hold bytes which are not taken."""
        return list(self._holdings)

    @property
    def is_full(self) -> bool:
        """Whether nothing may be added."""
        return self.total >= self.limit

    @property
    def is_crowded(self) -> bool:
        """Whether only those get something who hold nothing."""
        return 2 * self.total >= self.limit

    @property
    def fetch_bytes_max(self) -> int:
        """How much the next fetch may add; its first batch may be larger."""
        return max((self.limit // 2 - self.total) // FREE_PARTS, FETCH_BYTES_MIN)

    def record_unsent(self, holder: Holder, size: int, taken: int, now_ms: int) -> None:
        """Count what a connection holds now, and whether its peer has taken some meanwhile."""
        holding = self._holdings.get(holder)
        if holding is None:
            if not size:
                return
            holding = self._holdings[holder] = _Holding(taken, now_ms)
        elif taken != holding.taken:
            holding.taken, holding.progressed_ms = taken, now_ms
        self.total += size - holding.size
        holding.size = size
        if not size:
            del self._holdings[holder]

    def reserve(self, holder: Holder, size: int) -> None:
        """Keep room for what is being read of the storage."""
        self.release(holder)
        self._reserved[holder] = size
        self.total += size

    def release(self, holder: Holder) -> None:
        """Give the reserved room back: what was read counts by itself."""
        self.total -= self._reserved.pop(holder, 0)

    def forget(self, holder: Holder) -> None:
        """The connection is closed, or about to be."""
        self.release(holder)
        holding = self._holdings.pop(holder, None)
        if holding is not None:
            self.total -= holding.size

    def stalled(self, now_ms: int) -> Holder | None:
        """Return who gives way: of those that have stalled the one that holds most."""
        since_ms = now_ms - STALLED_MS
        found = [each for each, one in self._holdings.items() if one.progressed_ms <= since_ms]
        return max(found, key=lambda each: self._holdings[each].size, default=None)

    def is_idle(self, holder: Holder, since_ms: int) -> bool:
        """Tell whether a connection holds bytes of which none were taken since then."""
        holding = self._holdings.get(holder)
        return holding is not None and holding.progressed_ms <= since_ms

    # Memory that could be given back

    @property
    def is_high(self) -> bool:
        """Whether so much is held, or was, that its end must be noticed."""
        return max(self.total, self._peak) >= FALL_BYTES_MIN

    def has_fallen(self) -> bool:
        """Tell once, after much was held, that most of it has gone."""
        self._peak = max(self._peak, self.total)
        if self._peak - self.total < max(FALL_BYTES_MIN, self._peak // 2):
            return False
        self._peak = self.total
        return True
