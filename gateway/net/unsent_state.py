"""Unsent state: the bytes of responses that wait for slow clients, of all connections.

Rule: one limit holds for all connections together. Large responses share its first half: the less
of it is free, the less one fetch may add. The second half is for small responses, one at a time for
each connection. So clients that read are served while others hold what they got. When the limit is
reached, the connection that holds most, of those that sent nothing for a while, is closed.
Must not know: sockets, clocks, what a response is.
"""

from typing import Generic, TypeVar

from kledger.gateway.config import MIB

FREE_PARTS = 4
"""One fetch may add one of so many parts of what is free of the first half."""
FETCH_BYTES_MIN = 64 * 1024
"""What one fetch may always add while the limit is not reached."""
STALLED_MS = 2_000
"""A connection that sent nothing for so long has stalled: it is closed if there is no room."""
FALL_BYTES_MIN = 64 * MIB
"""A fall by less is not worth returning memory to the operating system."""

Holder = TypeVar("Holder")


class _Holding:
    """The unsent bytes of one connection.

    Attributes:
        size: bytes that its socket has not taken.
        taken: bytes that its socket has taken since it was connected.
        progressed_ms: when it was last measured to have taken some, or began to hold bytes.
    """

    __slots__ = ("progressed_ms", "size", "taken")

    def __init__(self, taken: int, now_ms: int) -> None:
        self.size, self.taken, self.progressed_ms = 0, taken, now_ms


class UnsentState(Generic[Holder]):
    """All connections that hold unsent bytes; times are monotonic milliseconds.

    Attributes:
        total: unsent and reserved bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._holdings: dict[Holder, _Holding] = {}
        self._reserved: dict[Holder, int] = {}
        self._peak = 0

    @property
    def holders(self) -> list[Holder]:
        """The connections that hold unsent bytes."""
        return list(self._holdings)

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached: no fetch may be answered."""
        return self.total >= self.limit

    @property
    def is_crowded(self) -> bool:
        """Whether only connections without unsent bytes may be answered."""
        return 2 * self.total >= self.limit

    @property
    def fetch_bytes_max(self) -> int:
        """How many bytes the next fetch may add; its first batch may be larger."""
        return max((self.limit // 2 - self.total) // FREE_PARTS, FETCH_BYTES_MIN)

    def is_holding(self, holder: Holder) -> bool:
        """Return whether a connection held unsent bytes when it was measured last."""
        return holder in self._holdings

    def record_unsent(self, holder: Holder, size: int, taken: int, now_ms: int) -> None:
        """Record a measurement: the unsent bytes of a connection, and those taken in all."""
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
        """Reserve bytes for a read of the storage; replaces an earlier reservation."""
        self.release(holder)
        self._reserved[holder] = size
        self.total += size

    def release(self, holder: Holder) -> None:
        """Release what was reserved: the bytes that were read count as unsent."""
        self.total -= self._reserved.pop(holder, 0)

    def forget(self, holder: Holder) -> None:
        """Forget a connection that is closed, or about to be."""
        self.release(holder)
        holding = self._holdings.pop(holder, None)
        if holding is not None:
            self.total -= holding.size

    def stalled(self, now_ms: int) -> Holder | None:
        """Return the stalled connection that holds most, or None."""
        since_ms = now_ms - STALLED_MS
        found = [each for each, one in self._holdings.items() if one.progressed_ms <= since_ms]
        return max(found, key=lambda each: self._holdings[each].size, default=None)

    def is_idle(self, holder: Holder, since_ms: int) -> bool:
        """Return whether a connection holds bytes and sent none since then."""
        holding = self._holdings.get(holder)
        return holding is not None and holding.progressed_ms <= since_ms

    # Memory that could be returned to the operating system.

    @property
    def is_high(self) -> bool:
        """Whether so many bytes are held, or were, that their fall must be measured."""
        return self.total >= FALL_BYTES_MIN or self._peak >= FALL_BYTES_MIN

    def has_fallen(self) -> bool:
        """Return True once after a fall by half of the peak, and by at least `FALL_BYTES_MIN`."""
        self._peak = max(self._peak, self.total)
        if self._peak - self.total < max(FALL_BYTES_MIN, self._peak // 2):
            return False
        self._peak = self.total
        return True
