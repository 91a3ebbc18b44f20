"""Simulated threads: the pool and the commit thread of a store, as work in a schedule.

Rule: a call begins at one moment, takes effect at a second and is reported to the loop at a third;
the loop and other threads run in between. A caller that blocks for a thread runs it to its end at
once, which is one of the possible orders.
Must not know: what the work is.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from kledger.ledger.commits.committer import CommitFinished
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.ledger.engine.base import CommitGroup, StorageEngine
from kledger.runtime.blocking import Arguments, Result
from tests.simulation.engine import SimulatedEngine
from tests.simulation.schedule import Event, Schedule

Token = TypeVar("Token")

POOL_THREADS = 4


def simulated_threads(schedule: Schedule) -> StoreThreads:
    """Return the threads for `LedgerStore.open`."""

    def start_commits(
        engine: StorageEngine, *, sync: bool, on_finished: CommitFinished[Token]
    ) -> SimulatedCommitThread[Token]:
        assert isinstance(engine, SimulatedEngine)
        return SimulatedCommitThread(schedule, engine, sync=sync, on_finished=on_finished)

    def make_pool() -> SimulatedPool:
        return SimulatedPool(schedule)

    return StoreThreads(
        pool=make_pool,
        compute_pool=make_pool,
        compute_processes=lambda: None,
        commits=start_commits,
    )


class _Job:
    """A call in the pool."""

    __slots__ = ("_call", "_schedule", "event", "future")

    def __init__(
        self, schedule: Schedule, call: Callable[[], Any], future: asyncio.Future[Any]
    ) -> None:
        self._schedule = schedule
        self._call = call
        self.future = future
        self.event: Event

    def perform(self, landed: Callable[["_Job"], None]) -> None:
        """Make the call; it is reported later."""
        try:
            settle: Callable[[], None] = partial(self._set_result, self._call())
        except Exception as error:  # noqa: BLE001 - the caller gets it
            settle = partial(self._set_exception, error)

        def on_finished() -> None:
            landed(self)
            self.future.get_loop().call_soon_threadsafe(settle)

        self.event = self._schedule.work(on_finished)

    def _set_result(self, result: object) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _set_exception(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class SimulatedPool:
    """A `BlockingRunner` with several threads, so that calls overtake each other."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._waiting: deque[_Job] = deque()
        self._running: list[_Job] = []
        self._is_closed = False

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Make the call later. Cancelling its caller does not stop a call that has begun."""
        if self._is_closed:
            raise RuntimeError("the pool is closed")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Job(self._schedule, partial(call, *arguments), future))
        self._begin()
        return await future

    def yield_gil(self) -> None:
        """Do nothing: simulated work takes effect in one moment."""

    def close(self) -> None:
        """Complete all calls, as `ThreadPoolExecutor.shutdown` does."""
        self._is_closed = True
        while self._running:
            self._running[0].event.finish()

    def _begin(self) -> None:
        while self._waiting and len(self._running) < POOL_THREADS:
            job = self._waiting.popleft()
            if not job.future.cancelled():
                self._running.append(job)
                job.event = self._schedule.work(partial(job.perform, self._landed))

    def _landed(self, job: _Job) -> None:
        self._running.remove(job)
        self._begin()


class SimulatedCommitThread(Generic[Token]):
    """A `CommitRunner`: writes, syncs and reports, each at its own moment."""

    def __init__(
        self,
        schedule: Schedule,
        engine: SimulatedEngine,
        *,
        sync: bool,
        on_finished: CommitFinished[Token],
    ) -> None:
        self._schedule = schedule
        self._engine = engine
        self._sync = sync
        self._land = on_finished
        self._queue: deque[tuple[CommitGroup, Token]] = deque()
        self._has_begun = False
        self._event: Event | None = None

    def submit(self, group: CommitGroup, token: Token) -> None:
        self._queue.append((group, token))
        if self._event is None:
            self._event = self._schedule.work(self._write)

    def stop(self) -> None:
        while self._event is not None:
            self._event.finish()

    def abandon(self) -> None:
        """Stop after the running commit; a real thread may also have begun the next one."""
        if self._event is not None and not self._has_begun and self._schedule.tie() < 0.5:
            self._event.action = None
            self._event = None
            self._queue.clear()
        self.stop()

    def _write(self) -> None:
        self._has_begun = True
        group, _ = self._queue[0]
        try:
            self._engine.write(group, sync_follows=self._sync)
        except Exception as error:  # noqa: BLE001 - whatever it is, the loop decides on it
            self._event = self._schedule.work(partial(self._report, error))
        else:
            next_step = self._make_durable if self._sync else partial(self._report, None)
            self._event = self._schedule.work(next_step)

    def _make_durable(self) -> None:
        error: Exception | None = None
        try:
            self._engine.sync()
        except Exception as failure:  # noqa: BLE001 - whatever it is, the loop decides on it
            error = failure
        self._event = self._schedule.work(partial(self._report, error))

    def _report(self, error: Exception | None) -> None:
        _, token = self._queue.popleft()
        self._has_begun = False
        self._event = self._schedule.work(self._write) if self._queue else None
        self._land(token, error)
