"""Simulated loop: asyncio's event loop over virtual time, without sockets, threads and waiting.

Rule: every order that asyncio guarantees is kept: callbacks run first in, first out, and timers are
checked only between two ticks. Permuted is only what asyncio does not guarantee: when a thread's
`call_soon_threadsafe` takes effect within a tick, even within a callback (wherever the callback
itself schedules one), the order in which two threads do so, how long a callback takes, and which of
two timers with equal deadlines fires first.
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
    """The loop of one life of a process; an exception in an asyncio callback ends it."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule
        self._queue: deque[Handle] = deque()
        self._order = count()
        self._timers: list[tuple[int, float, int, TimerHandle]] = []
        self._is_over = False
        self._born: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self.set_task_factory(self._bear)
        self.set_exception_handler(self._on_exception)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run until `work` has ended, or the run is interrupted."""
        task = self.create_task(work)
        task.add_done_callback(lambda _: self.stop())
        self.run_forever()
        return task.result()

    def end(self) -> None:
        """Drop what still runs, as the end of a process does, without any notification."""
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

    # The interface of asyncio's event loop

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
        """Do nothing: a cancelled timer stays in the heap and is skipped when it is due."""

    def _run_once(self) -> None:
        """Run one tick: the callbacks that are in the queue at its beginning."""
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
        """Advance time to the next event."""
        moments = [self._timers[0][0]] if self._timers else []
        if (next_us := self._schedule.next_us) is not None:
            moments.append(next_us)
        if not moments:
            raise InvariantBroken("nothing will ever happen again, and a caller still waits")
        self._schedule.jump_to(min(moments))

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._is_over:
            error = context.get("exception")
            self._schedule.interrupt(error or InvariantBroken(context["message"]))


def _close(task: asyncio.Task[Any]) -> None:
    """Drop a task; what its coroutine does while it is closed has no effect."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    if not isinstance(coroutine, CoroutineType):  # the end of an asynchronous generator
        with suppress(Exception):
            coroutine.close()
        return
    has_begun = inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED
    given = () if has_begun else tuple(inspect.getcoroutinelocals(coroutine).values())
    for each in (
        coroutine,
        *given,
    ):  # an awaitable of a coroutine that never began is never started
        if isinstance(each, Coroutine):
            with suppress(Exception):
                each.close()
