"""RedeliveryTimer: requests the redelivery of records of one link when it is due.

Rule: `redelivery_schedule_state` knows the records and their times; this module owns the one timer.
After the end of the link nothing is requested.
Must not know: why a record is redelivered.
"""

from collections.abc import Callable

from kledger.ledger import Position
from kledger.native.client.redelivery_schedule_state import RedeliverySchedule
from kledger.runtime.clock import Clock
from kledger.runtime.timers import TimerHandle, Timers
from kledger.subscriptions.model import RecordMask


class RedeliveryTimer:
    """The timer of one link."""

    def __init__(
        self, clock: Clock, timers: Timers, redeliver: Callable[[list[RecordMask]], None]
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._redeliver = redeliver
        self._state = RedeliverySchedule()
        self._timer: TimerHandle | None = None
        self._timer_ms = 0

    def schedule(self, position: Position, records: int, *, delay_ms: int) -> None:
        """Redeliver one record, or a whole entry, after a delay."""
        now_ms = self._clock.monotonic_ms()
        self._state.schedule(position, records, now_ms=now_ms, delay_ms=delay_ms)
        self._arm()

    def forget(self, position: Position, records: int) -> None:
        """Cancel the redelivery of these records: they are acknowledged."""
        if not self._state.is_empty:
            self._state.forget(position, records)

    def forget_upto(self, position: Position, records: int) -> None:
        """Cancel the redelivery of these records and all before them: they are acknowledged."""
        if not self._state.is_empty:
            self._state.forget_upto(position, records)

    def clear(self) -> None:
        """Cancel all redeliveries."""
        self._state.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        next_ms = self._state.next_ms
        if next_ms is None or (self._timer is not None and self._timer_ms <= next_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.call_at(next_ms, self._fire)
        self._timer_ms = next_ms

    def _fire(self) -> None:
        self._timer = None
        if due := self._state.pop_due(self._clock.monotonic_ms()):
            self._redeliver(due)
        self._arm()
