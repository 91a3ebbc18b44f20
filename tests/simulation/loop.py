"""Simulated loop: asyncio's event loop over virtual time, without sockets, threads and waiting.

Rule: the order is asyncio's own wherever asyncio has one. What was put into the queue first runs
first, and a timer is looked at only between two turns; nothing of this is permuted, because no
machine would ever do so, and a bug that needs it is none. Permuted is what no program can rely on:
when a thread's `call_soon_threadsafe` falls into a turn, down to the middle of a callback (wherever
the callback itself puts something into the queue), in which order two threads do so, how long a
callback takes, and which of two timers of one moment is first.
Must not know: what runs on it.
"""

import asyncio
import heapq
import inspect
from asyncio import Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from itertools import count
from types import CoroutineType
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from tests.simulation.invariants import InvariantBroken
from tests.simulation.schedule import Schedule

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class SimulatedLoop(asyncio.BaseEventLoop):
    """One life of a process; whatever an asyncio callback raises ends it."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule
        self._queue: deque[Handle] = deque()
        self._order = count()
        self._timers: list[tuple[int, float, int, TimerHandle]] = []
        self._is_over = False
        self._born: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self.set_task_factory(self._bear)
        self.set_exception_handler(self._heard_exception)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run until `work` has ended, or something interrupts it."""
        task = self.create_task(work)
        task.add_done_callback(lambda _: self.stop())
        self.run_forever()
        return task.result()

    def end(self) -> None:
        """End what is still running, as the end of a process does: nobody is told."""
        self._is_over = True
        closed: set[asyncio.Task[Any]] = set()
        asyncio._set_running_loop(self)
        try:
            while tasks := asyncio.all_tasks(self) - closed:
                # A set of tasks is in the order of their addresses, which no seed replays.
                for task in sorted(tasks, key=self._born.__getitem__):
                    closed.add(task)
                    _close(task)
        finally:
            asyncio._set_running_loop(None)
        self._queue.clear()
        self._timers.clear()
        self.close()

    def _bear(
        self, _loop: asyncio.AbstractEventLoop, work: Any, **options: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=self, **options)
        self._born[task] = next(self._order)
        return task

    # asyncio's own face

    def time(self) -> float:
        return self._schedule.now_us / 1e6

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> Handle:
        self._schedule.pass_time()
        handle = Handle(callback, args, self, context)
        self._queue.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> Handle:
        handle = Handle(callback, args, self, context)
        self._queue.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> TimerHandle:
        handle = TimerHandle(when, callback, args, self, context)
        entry = (round(when * 1e6), self._schedule.tie(), next(self._order), handle)
        heapq.heappush(self._timers, entry)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """A cancelled timer stays where it is and is skipped when it is due."""

    def _run_once(self) -> None:
        """One turn: what is in the queue at its beginning."""
        schedule, queue, timers = self._schedule, self._queue, self._timers
        if not queue:
            self._raise_interruption()
            self._wait()
        while timers and timers[0][0] <= schedule.now_us:
            queue.append(heapq.heappop(timers)[3])
        for _ in range(len(queue)):
            self._raise_interruption()
            handle = queue.popleft()
            if not handle.cancelled():
                handle._run()
                schedule.pass_time()

    def _raise_interruption(self) -> None:
        if self._schedule.interruption is not None:
            raise self._schedule.interruption

    def _wait(self) -> None:
        """Go on to the next moment at which something happens."""
        moments = [self._timers[0][0]] if self._timers else []
        if (next_us := self._schedule.next_us) is not None:
            moments.append(next_us)
        if not moments:
            raise InvariantBroken("nothing will ever happen again, and somebody still waits")
        self._schedule.jump_to(min(moments))

    def _heard_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._is_over:
            error = context.get("exception")
            self._schedule.interrupt(error or InvariantBroken(context["message"]))


def _close(task: asyncio.Task[Any]) -> None:
    """Forget a task; what its coroutine still does on the way out does not count."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    assert isinstance(coroutine, CoroutineType)
    has_begun = inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED
    given = () if has_begun else tuple(inspect.getcoroutinelocals(coroutine).values())
    for each in (coroutine, *given):  # what one that never began was to await never begins either
        if isinstance(each, Coroutine):
            with suppress(Exception):
                each.close()
