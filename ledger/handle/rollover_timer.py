"""Rollover timer: rolls over an open ledger by age while nothing is appended to it.

Rule: an append checks the age itself, so the timer covers the time between appends. It runs only
while the ledger has entries; WriteTailState gives the deadline, and gives it again when the timer
fires. A failed rollover is retried after RETRY_MS.
Must not know: what a rollover is.
"""

from collections.abc import Callable

from kledger.ledger.handle.write_tail_state import WriteTailState
from kledger.runtime.clock import Clock
from kledger.runtime.containment import FaultUnit
from kledger.runtime.timers import TimerHandle, Timers

RETRY_MS = 1000
"""How long after a failed write a rollover that is due is retried."""


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
        """Make a stopped timer.

        Args:
            tail: gives the deadline.
            timers: call back at the deadline.
            clock: of these timers.
            roll: called at the deadline, unless the timer was stopped.
            unit: closed by a fault of `roll`.
        """
        self._tail = tail
        self._timers = timers
        self._clock = clock
        self._roll = roll
        self._unit = unit
        self._handle: TimerHandle | None = None

    def restart(self, *, delay_ms: int = 0) -> None:
        """Wait for the deadline of the open ledger, at least `delay_ms`; stop while it is empty."""
        self.stop()
        deadline_ms = self._tail.roll_deadline_ms
        if self._tail.next_entry and deadline_ms is not None:
            if delay_ms:
                deadline_ms = max(deadline_ms, self._clock.monotonic_ms() + delay_ms)
            self._handle = self._timers.call_at(deadline_ms, self._fire, self._unit)

    def stop(self) -> None:
        """Stop waiting; `restart` begins again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def end(self) -> None:
        """Stop for good, and drop the references to the handle."""
        self.stop()
        self._roll, self._unit = _ended, None

    def _fire(self) -> None:
        """Roll over, unless an append has moved the deadline since the timer was set."""
        self._handle = None
        deadline_ms = self._tail.roll_deadline_ms
        if deadline_ms is not None and deadline_ms > self._clock.monotonic_ms():
            self.restart()
        else:
            self._roll()


def _ended() -> None:
    """Stand for `roll` after `end`."""
