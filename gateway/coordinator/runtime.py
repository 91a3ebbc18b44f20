"""Runtime: performs the effects of coordinator states: timers, rows, waiting requests.

Rule: decides nothing. Effects are performed in order, at once, on the loop; what ends later (a
write, a timer) comes back to the state as an event and yields more effects.
Must not know: groups, transactions, messages.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol, assert_never

from gateway.coordinator.outcome import Answer, Cancel, Effect, Persist, Schedule, TimerKey
from ledger import LedgerError, LedgerStore
from runtime.clock import Clock
from runtime.later import Later
from runtime.timers import TimerHandle, Timers


class Machine(Protocol):
    """A pure state behind one face, so that the runtime can serve any kind."""

    def timer_fired(self, key: TimerKey, now_ms: int) -> list[Effect]:
        """Do what was put off until now."""
        ...

    def persisted(self, revision: int, *, failed: bool, now_ms: int) -> list[Effect]:
        """Go on after a write."""
        ...

    def abandon(self, waiter: int, now_ms: int) -> list[Effect]:
        """Note that the waiter is gone."""
        ...

    def rows(self, record: object) -> Sequence[tuple[bytes, bytes | None]]:
        """Return the rows that make `record` durable."""
        ...


class Host:
    """One machine with the timers that it has set."""

    __slots__ = ("machine", "timers")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.timers: dict[TimerKey, TimerHandle] = {}


class CoordinatorRuntime:
    """Serves all machines of one coordinator."""

    def __init__(self, store: LedgerStore, clock: Clock, timers: Timers) -> None:
        self._store = store
        self._clock = clock
        self._timers = timers
        self._next_waiter = 0
        self._waiting: dict[int, tuple[Later[object], object]] = {}

    @property
    def waiting_count(self) -> int:
        """How many requests wait for an answer."""
        return len(self._waiting)

    def register(self, refusal: object) -> int:
        """Open a waiter; `refusal` is its answer if the coordinator closes first."""
        self._next_waiter += 1
        self._waiting[self._next_waiter] = (Later(), refusal)
        return self._next_waiter

    def run(self, host: Host, waiter: int, effects: Iterable[Effect]) -> Later[object]:
        """Perform what a request caused; return its answer, which may come later.

        When a caller that awaits it is cancelled the machine learns that nobody waits any more.
        """
        answer, _ = self._waiting[waiter]
        self.perform(host, effects)
        if not answer.is_settled:
            answer.on_abandoned = partial(self._abandon, host, waiter)
        return answer

    def perform(self, host: Host, effects: Iterable[Effect]) -> None:
        """Perform effects of one machine in order."""
        for effect in effects:
            match effect:
                case Answer(waiter, result):
                    self._answer(waiter, result)
                case Schedule(key, delay_ms):
                    self._cancel(host, key)
                    fire = partial(self._fire, host, key)
                    host.timers[key] = self._timers.call_after(delay_ms, fire)
                case Cancel(key):
                    self._cancel(host, key)
                case Persist(revision, record):
                    self._persist(host, revision, record)
                case _:
                    assert_never(effect)

    def retire(self, host: Host) -> None:
        """Cancel every timer of a machine that is no longer served."""
        for handle in host.timers.values():
            handle.cancel()
        host.timers.clear()

    def refuse_all(self) -> None:
        """Answer everyone who waits with the refusal that was given for it."""
        waiting, self._waiting = self._waiting, {}
        for answer, refusal in waiting.values():
            answer.settle(refusal)

    def _answer(self, waiter: int, result: object) -> None:
        entry = self._waiting.pop(waiter, None)
        if entry is not None:
            entry[0].settle(result)

    def _abandon(self, host: Host, waiter: int) -> None:
        if self._waiting.pop(waiter, None) is not None:
            self.perform(host, host.machine.abandon(waiter, self._clock.monotonic_ms()))

    def _cancel(self, host: Host, key: TimerKey) -> None:
        handle = host.timers.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _persist(self, host: Host, revision: int, record: object) -> None:
        """Hand rows to the store; one that has stopped fails them at once."""
        stored = partial(self._stored, host, revision)
        try:
            self._store.append_rows_nowait(host.machine.rows(record), stored)
        except LedgerError as error:
            stored(error)

    def _fire(self, host: Host, key: TimerKey) -> None:
        host.timers.pop(key, None)
        self.perform(host, host.machine.timer_fired(key, self._clock.monotonic_ms()))

    def _stored(self, host: Host, revision: int, error: LedgerError | None) -> None:
        now_ms = self._clock.monotonic_ms()
        failed = error is not None
        self.perform(host, host.machine.persisted(revision, failed=failed, now_ms=now_ms))
