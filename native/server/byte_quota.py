"""ByteQuota: how long one stream waits for its user's quota of bytes.

Rule: a use is counted when it has happened, as by Apache Kafka; what is over the quota makes the
stream wait until the rate is within it again. A later use makes it wait longer.
Must not know: streams, how quotas are shared.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kledger.runtime.timers import Timers

if TYPE_CHECKING:
    from kledger.runtime.timers import TimerHandle


class ByteQuota:
    """The quota of one direction of a stream."""

    def __init__(self, charge: Callable[[int], int], timers: Timers) -> None:
        """Prepare.

        Args:
            charge: counts bytes; returns for how many milliseconds the client is to wait.
            timers: end the waiting.
        """
        self._charge = charge
        self._timers = timers
        self._end: TimerHandle | None = None

    def count(self, size: int, resume: Callable[[], None]) -> bool:
        """Count bytes; return whether the stream waits, until `resume` is called."""
        wait_ms = self._charge(size)
        if wait_ms > 0:
            self.close()
            self._end = self._timers.call_after(wait_ms, partial(self._ended, resume))
        return self._end is not None

    def _ended(self, resume: Callable[[], None]) -> None:
        self._end = None
        resume()

    def close(self) -> None:
        """Forget what waits. May be repeated."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
