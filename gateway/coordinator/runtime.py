"""Runtime: performs the effects of coordinator states: timers, rows, waiting requests.

Rule: decides nothing. Effects are performed in order, at once, on the loop; what ends later (a
write, a timer) reaches the state as an event and yields more effects. A state that fails on an
event or a request is dropped, and loaded again from its row.
Must not know: groups, transactions, messages.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar, assert_never

from kledger.gateway.coordinator.effects import Cancel, Effect, Persist, Respond, Schedule, TimerKey
from kledger.ledger import LedgerError, LedgerStore, Row
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.deferred import Deferred
from kledger.runtime.timers import TimerHandle, Timers

Result = TypeVar("Result")


class StateMachine(Protocol):
    """The interface of a pure state, so that the runtime can serve any kind."""

    def timer_fired(self, key: TimerKey, now_ms: int) -> list[Effect]:
        """Handle a timer that fired."""
        ...

    def persisted(self, revision: int, *, failed: bool, now_ms: int) -> list[Effect]:
        """Handle the end of a write: it is durable, or it failed."""
        ...

    def abandon(self, waiter: int, now_ms: int) -> list[Effect]:
        """Handle a cancelled request: its waiter gets no answer."""
        ...

    def rows(self, record: object) -> Sequence[Row]:
        """Return the rows that make `record` durable."""
        ...


class HostedMachine:
    """One machine with the timers that it has set.

    Attributes:
        has_failed: a fault has closed it; later events for it are ignored.
    """

    __slots__ = ("has_failed", "machine", "name", "timers")

    def __init__(self, machine: StateMachine, name: str = "") -> None:
        self.machine = machine
        self.name = name
        self.has_failed = False
        self.timers: dict[TimerKey, TimerHandle] = {}


@dataclass(slots=True)
class _PendingRequest:
    """A request that waits; `refusal` is its answer when its machine cannot give one."""

    refusal: object
    answer: Deferred[object] = field(default_factory=Deferred)
    hosted: HostedMachine | None = None


class CoordinatorRuntime:
    """Serves all machines of one coordinator."""

    def __init__(self, store: LedgerStore, clock: Clock, timers: Timers) -> None:
        self._store = store
        self._clock = clock
        self._timers = timers
        self._next_waiter = 0
        self._waiting: dict[int, _PendingRequest] = {}
        self.containment = store.containment
        self.on_fault: Callable[[HostedMachine], None] = _no_fault_handler
        """Called when a fault has closed a machine: it is loaded again from its row."""

    @property
    def waiting_count(self) -> int:
        """How many requests wait for an answer."""
        return len(self._waiting)

    def register(self, refusal: object) -> int:
        """Open a waiter; `refusal` is its answer if the coordinator closes first."""
        self._next_waiter += 1
        self._waiting[self._next_waiter] = _PendingRequest(refusal)
        return self._next_waiter

    def run(
        self, hosted: HostedMachine, waiter: int, request: Callable[[int], Iterable[Effect]]
    ) -> Deferred[object]:
        """Let a machine decide on a request; return its answer, which may come later.

        A fault closes the machine, and the answer is the refusal of the waiter. When the caller
        that awaits it is cancelled, the machine's `abandon` is called.

        Args:
            hosted: the machine.
            waiter: what `register` returned for the request.
            request: lets the machine decide, at a monotonic time.
        """
        waiting = self._waiting[waiter]
        waiting.hosted, answer = hosted, waiting.answer
        self.decide(hosted, lambda now_ms: (None, request(now_ms)), None)
        if hosted.has_failed and waiter in self._waiting:
            self._refuse(waiter)
        if not answer.is_resolved:
            answer.on_cancelled = partial(self._abandon, hosted, waiter)
        return answer

    def decide(
        self,
        hosted: HostedMachine,
        request: Callable[[int], tuple[Result, Iterable[Effect]]],
        refusal: Result,
    ) -> Result:
        """Let a machine decide on a request that is answered at once; return the answer.

        A fault closes the machine, and the answer is `refusal`.

        Args:
            hosted: the machine.
            request: lets the machine decide, at a monotonic time.
            refusal: the answer if nothing was decided.
        """
        if hosted.has_failed:
            # Loading it again has failed before.
            self.containment.run(NamedUnit("group", hosted.name), self.on_fault, hosted)
            return refusal
        try:
            answer, effects = request(self._clock.monotonic_ms())
            self.perform(hosted, effects)
        except Exception as error:  # noqa: BLE001 - its partial changes are dropped
            self._failed(hosted, error)
            return refusal
        return answer

    def perform(self, hosted: HostedMachine, effects: Iterable[Effect]) -> None:
        """Perform effects of one machine in order."""
        for effect in effects:
            match effect:
                case Respond(waiter, result):
                    self._answer(waiter, result)
                case Schedule(key, delay_ms):
                    self._cancel(hosted, key)
                    fire = partial(self._timer_fired, hosted, key)
                    hosted.timers[key] = self._timers.call_after(delay_ms, fire)
                case Cancel(key):
                    self._cancel(hosted, key)
                case Persist(revision, record):
                    self._persist(hosted, revision, record)
                case _:
                    assert_never(effect)

    def retire(self, hosted: HostedMachine) -> None:
        """Cancel every timer of a machine that is no longer served."""
        for handle in hosted.timers.values():
            handle.cancel()
        hosted.timers.clear()

    def refuse_all(self) -> None:
        """Answer every waiting request with its refusal."""
        for waiter in tuple(self._waiting):
            self._refuse(waiter)

    def _refuse(self, waiter: int) -> None:
        waiting = self._waiting.pop(waiter)
        waiting.answer.resolve(waiting.refusal)

    def _answer(self, waiter: int, result: object) -> None:
        waiting = self._waiting.pop(waiter, None)
        if waiting is not None:
            waiting.answer.resolve(result)

    def _abandon(self, hosted: HostedMachine, waiter: int) -> None:
        if self._waiting.pop(waiter, None) is not None:
            self._deliver(hosted, partial(hosted.machine.abandon, waiter))

    def _cancel(self, hosted: HostedMachine, key: TimerKey) -> None:
        handle = hosted.timers.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _persist(self, hosted: HostedMachine, revision: int, record: object) -> None:
        """Submit rows to the store; one that has stopped fails them at once."""
        stored = partial(self._write_finished, hosted, revision)
        try:
            self._store.append_rows_nowait(hosted.machine.rows(record), stored)
        except LedgerError as error:
            stored(error)

    def _timer_fired(self, hosted: HostedMachine, key: TimerKey) -> None:
        hosted.timers.pop(key, None)
        self._deliver(hosted, partial(hosted.machine.timer_fired, key))

    def _write_finished(
        self, hosted: HostedMachine, revision: int, error: LedgerError | None
    ) -> None:
        def persisted(now_ms: int) -> list[Effect]:
            return hosted.machine.persisted(revision, failed=error is not None, now_ms=now_ms)

        self._deliver(hosted, persisted)

    def _deliver(self, hosted: HostedMachine, event: Callable[[int], list[Effect]]) -> None:
        """Pass an event that is no request to a machine; a fault closes that machine."""
        if hosted.has_failed:
            return
        try:
            self.perform(hosted, event(self._clock.monotonic_ms()))
        except Exception as error:  # noqa: BLE001 - other machines go on
            self._failed(hosted, error)

    def _failed(self, hosted: HostedMachine, error: Exception) -> None:
        unit = NamedUnit("group", hosted.name, partial(self._close_after_fault, hosted))
        self.containment.failed(unit, error)

    def _close_after_fault(self, hosted: HostedMachine) -> None:
        hosted.has_failed = True
        self.retire(hosted)
        for waiter in [each for each, one in self._waiting.items() if one.hosted is hosted]:
            self._refuse(waiter)
        self.on_fault(hosted)


def _no_fault_handler(hosted: HostedMachine) -> None:
    """Stand in until the owner of the machines sets `on_fault`."""
