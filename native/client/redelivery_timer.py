"""Lets records of one consumer's link come again when their time has come.

Rule: `redelivery_state` knows what and when; here is the one timer, and nothing is asked for after
the end of the link.
Must not know: why a record is to come again.
"""

from collections.abc import Callable

from kledger.ledger import Position
from kledger.native.client.redelivery_schedule_state import RedeliverySchedule
from kledger.runtime.clock import Clock
from kledger.runtime.timers import TimerHandle, Timers
from kledger.subscriptions.model import RecordMask


class RedeliveryTimer:
    """For one link of a consumer."""

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
        """Let one record, or a whole entry, come again after a delay."""
        now_ms = self._clock.monotonic_ms()
        self._state.schedule(position, records, now_ms=now_ms, delay_ms=delay_ms)
        self._arm()

    def forget(self, position: Position, records: int) -> None:
        """These are acknowledged."""
        if not self._state.is_empty:
            self._state.forget(position, records)

    def forget_upto(self, position: Position, records: int) -> None:
        """Everything before that entry is acknowledged, and these of it."""
        if not self._state.is_empty:
            self._state.forget_upto(position, records)

    def clear(self) -> None:
        """Everything comes again anyway, or nothing does any more."""
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
