"""I/O throttle: limits what background work reads and writes in a second.

Rule: on average, the sum of everything is below the limit; one step may go beyond it, and the next
ones wait for that. A limit that changes also counts for steps that wait already. What was not taken
may be saved for a burst, a token bucket; steps without a limit take from it, too.
Must not know: what is read or written.

Source of the rule: Kafka's log cleaner, `log.cleaner.io.max.bytes.per.second`.
"""

import math
from collections.abc import Callable

from kledger.runtime.clock import Clock

CHECK_MS = 1_000
"""A step that waits reads the limit this often."""


class IoThrottle:
    """The limit of all background work of one kind together."""

    def __init__(
        self,
        clock: Clock,
        bytes_per_second: Callable[[], float],
        burst_bytes: Callable[[], float] = lambda: 0,
    ) -> None:
        """Make one that begins with a whole burst.

        Args:
            clock: for the waits.
            bytes_per_second: the limit at present, at least 1; infinity for none.
            burst_bytes: how much is saved at most.
        """
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._burst_bytes = burst_bytes
        self.taken_bytes = 0
        """What all steps have taken so far."""
        self._excess = -float(burst_bytes())
        """Bytes above the limit, at `_computed_ms`; below zero: saved."""
        self._computed_ms = clock.monotonic_ms()

    async def take(self, size: int) -> None:
        """Wait until bytes may be read or written; count them."""
        while (wait_ms := self._wait_ms()) >= 1:
            await self._clock.sleep(min(int(wait_ms), CHECK_MS))
        self.taken_bytes += size
        self._excess += size

    def _wait_ms(self) -> float:
        now_ms, bytes_per_ms = self._clock.monotonic_ms(), max(1.0, self._bytes_per_second()) / 1000
        passed_ms, self._computed_ms = now_ms - self._computed_ms, now_ms
        if math.isinf(bytes_per_ms):
            self._excess = min(self._excess, 0.0)
        else:
            self._excess = max(-self._burst_bytes(), self._excess - passed_ms * bytes_per_ms)
        return self._excess / bytes_per_ms
