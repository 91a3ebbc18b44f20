"""Scene: one life of a process with a store, and what actions need.

Rule: an action draws everything from `random`, starts operations with `start`, and passes every
error to `explain`: an error without a reason is a broken invariant.
Must not know: which actions there are.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from kledger.ledger import (
    AlreadyClosed,
    Corrupt,
    Cursor,
    Fenced,
    LedgerError,
    LedgerStore,
    Position,
    StorageFailed,
    Terminated,
    TierUnavailable,
    TooManyRequests,
)
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.simulation.bucket import Bucket
from tests.simulation.clock import SimulatedClock
from tests.simulation.cursor_model import CursorModel
from tests.simulation.engine import SimulatedEngine
from tests.simulation.entries import Key
from tests.simulation.faults import Faults, InjectedFault
from tests.simulation.invariants import InvariantBroken
from tests.simulation.log_model import HandleModel, LogModel
from tests.simulation.loop import SimulatedLoop
from tests.simulation.schedule import Schedule
from tests.simulation.seed_profile import SeedProfile
from tests.simulation.store_model import StoreModel

KEYS: tuple[Key, ...] = (b"a", b"b", b"c", None)
SHARED = "shared"
"""The name of the subscription's cursor, which no other action uses."""
UNBOUNDED_WAITING = 10_000
STALE_HANDLES = 4
TIMEOUT_S = 600.0
"""Virtual time within which all operations must end when nothing fails."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The state when an operation began; `was_lost`: it cannot succeed."""

    handle: HandleModel
    lac: Position
    was_changing: bool
    was_lost: bool


@dataclass(frozen=True, slots=True)
class CursorUse:
    """A cursor, and its state before an operation."""

    model: CursorModel
    cursor: Cursor
    handle: HandleModel

    def __str__(self) -> str:
        return str(self.model)


@dataclass(slots=True, eq=False)
class Scene:
    """Attributes:
    store: the current owner of the engine; a takeover replaces it.
    tasks: running operations, and their descriptions.
    cancelled: tasks that were cancelled.
    changing: running openings and deletions, by name.
    numbers: of openings and deletions, in the order in which they began.
    orphans: the newest opening or deletion whose caller was cancelled, by name.
    busy: operations that run one at a time, so that their outcome is known.
    stale: some fenced handles.
    undrained: callbacks of `on_drained` that are due.
    given_up: cursors whose waiting read was cancelled.
    supervisor, timers: of subscriptions.
    is_ending: the store is being closed.
    is_over: the process has ended.
    """

    random: Random
    schedule: Schedule
    loop: SimulatedLoop
    clock: SimulatedClock
    faults: Faults
    engine: SimulatedEngine
    bucket: Bucket
    model: StoreModel
    profile: SeedProfile
    trace: Callable[[str], None]
    open_store: Callable[[], Coroutine[Any, Any, LedgerStore]]
    store: LedgerStore = field(init=False)
    tasks: dict[asyncio.Task[None], str] = field(default_factory=dict)
    cancelled: set[asyncio.Task[None]] = field(default_factory=set)
    changing: Counter[str] = field(default_factory=Counter)
    orphans: dict[str, int] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)
    busy: set[object] = field(default_factory=set)
    stale: deque[HandleModel] = field(default_factory=deque)
    undrained: int = 0
    given_up: set[Cursor] = field(default_factory=set)
    supervisor: Supervisor = field(default_factory=Supervisor)
    timers: Timers = field(init=False)
    step: int = -1
    is_ending: bool = False
    is_over: bool = False

    def __post_init__(self) -> None:
        self.timers = Timers(self.clock, self.supervisor)

    def trace_line(self, text: str) -> None:
        """Write a line of the trace, unless the process has ended."""
        if not self.is_over:
            self.trace(f"step {self.step}: {text}")

    # Picking

    def log(self) -> LogModel:
        """Pick a managed ledger, whether or not it exists."""
        return self.model.logs[self.random.choice(self.profile.names)]

    def handle(self) -> HandleModel | None:
        """Pick a handle, None if that managed ledger has none."""
        handle = self.log().handle
        return None if handle is None or handle.is_stale or handle.is_losing else handle

    def cursor(self) -> CursorUse | None:
        """Pick a cursor of some handle, open or closed."""
        handle = self.handle()
        if handle is None:
            return None
        models = [*handle.log.cursors.values(), *handle.non_durable]
        uses = [
            CursorUse(model, model.cursor, handle)
            for model in models
            if model.cursor is not None and model.handle is handle and model.name != SHARED
        ]
        return self.random.choice(uses) if uses else None

    @property
    def is_paced(self) -> bool:
        """Whether acknowledgements return before they are durable."""
        return self.profile.store.cursor_persist_per_second is not None

    def ownerless(self) -> LogModel | None:
        """Pick a managed ledger that is neither open nor being opened."""
        log = self.log()
        has_owner = log.handle is not None and not (log.handle.is_stale or log.handle.is_losing)
        return None if has_owner or self.changing[log.name] else log

    def position(self, log: LogModel) -> Position:
        """Pick a position: of an entry that exists or existed, or near one."""
        if not log.order:
            return Position(self.random.randrange(-1, 20), self.random.randrange(-1, 5))
        known = self.random.choice(log.order)
        shift = self.random.choice((0, 0, 0, -1, 1, 1000))
        ledger_shift = self.random.choice((0, 0, 0, 0, 1, -1))
        return Position(known.ledger_id + ledger_shift, max(known.entry_id + shift, -1))

    def retire(self, handle: HandleModel) -> None:
        """Record that a handle is fenced."""
        self.model.observe(handle)
        handle.is_stale = True
        self.stale.append(handle)
        if len(self.stale) > STALE_HANDLES:
            self.stale.popleft()

    def keys(self) -> list[Key]:
        """Draw the keys of a batch's records; none where entries are no batches."""
        if not self.profile.shares:
            return []
        return self.random.choices(KEYS, k=self.random.choice((1, 1, 2, 3)))

    def ask_for_fault(self, operation: str, handle: HandleModel) -> None:
        """Raise if a callback of a handle shall fail: the handle closes at once."""
        try:
            self.faults.ask(operation)
        except InjectedFault:
            self.trace_line(f"{handle} fails in a {operation}")
            handle.is_losing = True
            self.loop.call_soon(self._check_failed, handle)
            raise

    def _check_failed(self, handle: HandleModel) -> None:
        if not handle.ml.has_failed:
            self.schedule.interrupt(InvariantBroken(f"{handle} continues after a fault"))

    # Operations

    def start(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Start an operation; it may be cancelled at any time."""
        self.trace_line(what)
        task = self.loop.create_task(work)
        self.tasks[task] = what
        task.add_done_callback(self._ended)
        if self.random.random() < self.profile.cancels:
            delay_us = self.schedule.work_us()
            self.loop.call_later(delay_us / 1e6, self._cancel, task)

    async def rest(self) -> None:
        """Wait for the end of all operations."""
        if self.tasks:
            _, waiting = await asyncio.wait(list(self.tasks), timeout=TIMEOUT_S)
            if waiting:
                names = sorted(self.tasks[task] for task in waiting)
                raise InvariantBroken(f"never ended: {', '.join(names)}")

    def _ended(self, task: asyncio.Task[None]) -> None:
        what = self.tasks.pop(task)
        if task.cancelled():
            if task not in self.cancelled and not self.is_over:
                self.schedule.interrupt(InvariantBroken(f"cancelled without a request: {what}"))
            self.trace_line(f"cancelled: {what}")
        elif (error := task.exception()) is not None:
            self.schedule.interrupt(error)

    def _cancel(self, task: asyncio.Task[None]) -> None:
        if not task.done():
            self.trace_line(f"cancel: {self.tasks[task]}")
            self.cancelled.add(task)
            task.cancel()

    # Errors

    def attempt(self, handle: HandleModel) -> Attempt:
        """Record the state before an operation on a handle."""
        changing = self.changing[handle.log.name] > 0
        return Attempt(handle, handle.ml.last_confirmed_entry, changing, handle.is_stale)

    def explain(self, attempt: Attempt, error: LedgerError) -> None:
        """Raise unless there is a reason for an error."""
        handle = attempt.handle
        match error:
            case Fenced() | AlreadyClosed():
                has_reason = self.may_be_lost(attempt)
            case Terminated():
                has_reason = True in handle.log.ended
            case TooManyRequests():
                has_reason = self.profile.store.cold_reads_waiting_max < UNBOUNDED_WAITING
            case StorageFailed():
                has_reason = self.faults.count > 0  # it may have failed earlier
            case Corrupt():
                has_reason = self.faults.was_recent("read")
            case TierUnavailable():
                has_reason = self.faults.was_recent("tier", "tier hang")
            case _:
                has_reason = False
        if not has_reason:
            raise InvariantBroken(
                f"{handle}: {type(error).__name__} without a reason: {error}"
            ) from error

    def may_be_lost(self, attempt: Attempt) -> bool:
        """Return whether a handle may have been fenced since."""
        handle = attempt.handle
        return (
            attempt.was_changing
            or handle.is_stale
            or handle.is_losing
            or self.changing[handle.log.name] > 0
            or self.may_refuse(self.store)
        )

    def may_refuse(self, store: LedgerStore) -> bool:
        """Return whether a store has stopped, or lost the engine."""
        return self.is_ending or store.is_fenced or store is not self.store
