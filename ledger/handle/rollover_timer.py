"""Roll timer: rolls over an open ledger that nobody appends to, when its age says so.

Rule: an append looks at the age by itself, so this is only for the time between appends. One timer
per ledger that has entries; WriteTailState says when it is due, and is asked again when the time
has come. A rollover that failed is tried again after a while, not at once and not an age later.
Must not know: what a rollover is.
"""

from collections.abc import Callable

from kledger.ledger.handle.write_tail_state import WriteTailState
from kledger.runtime.clock import Clock
from kledger.runtime.containment import FaultUnit
from kledger.runtime.timers import TimerHandle, Timers

RETRY_MS = 1000
"""How long after a failed write a rollover that is due is tried again."""


class RolloverTimer:
    """The timer of one managed ledger."""

    __slots__ = ("_clock", "_handle", "_roll", "_tail", "_timers", "_unit")

    def __init__(
        self,
        tail: WriteTailState,
        *,
        timers: Timers,
        clock: Clock,
        roll: Callable[[], None],
        unit: FaultUnit | None = None,
    ) -> None:
        """Make a timer that is not set.

        Args:
            tail: says when it is due.
            timers: calls back.
            clock: of these timers.
            roll: called when it is due, if the timer was not stopped.
            unit: closed by a fault of `roll`.
        """
        self._tail = tail
        self._timers = timers
        self._clock = clock
        self._roll = roll
        self._unit = unit
        self._handle: TimerHandle | None = None

    def restart(self, *, delay_ms: int = 0) -> None:
        """Wait for the deadline of the open ledger, at least so long; not at all while empty."""
        self.stop()
        deadline_ms = self._tail.roll_deadline_ms
        if self._tail.next_entry and deadline_ms is not None:
            if delay_ms:
                deadline_ms = max(deadline_ms, self._clock.monotonic_ms() + delay_ms)
            self._handle = self._timers.call_at(deadline_ms, self._fire, self._unit)

    def stop(self) -> None:
        """Wait no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def end(self) -> None:
        """Wait no more, for ever: let go of what it calls."""
        self.stop()
        self._roll, self._unit = _ended, None

    def _fire(self) -> None:
        """Roll, unless somebody has written to an inactive ledger since the timer was set."""
        self._handle = None
        deadline_ms = self._tail.roll_deadline_ms
        if deadline_ms is not None and deadline_ms > self._clock.monotonic_ms():
            self.restart()
        else:
            self._roll()


def _ended() -> None:
    """The timer has ended."""
