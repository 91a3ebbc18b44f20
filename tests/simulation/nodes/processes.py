"""Processes: what a simulated server has of its machine: clocks, threads, and its end.

Rule: everything that makes a process go on passes `Process.go_on`: while it is paused, that waits,
and after it was killed, it is dropped; its tasks are cancelled then, and can do nothing any more.
Its threads are real ones, of which at most one runs at any time: a thread runs from one request to
the next, in one moment of virtual time, while the loop waits. So a pause or a kill comes between
any two requests, and a seed replays.
Must not know: what a process does.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock, Thread
from types import TracebackType
from typing import Any

from kledger.runtime.blocking import Arguments, Result
from tests.simulation.clock import BEGINNING_MS
from tests.simulation.schedule import Schedule


class ProcessKilled(BaseException):
    """The process of this thread has ended."""


class Process:
    """One life of a server."""

    def __init__(self, schedule: Schedule, *, clock_rate: float = 1.0, boot_at_ms: int = 0) -> None:
        """Begin it.

        Args:
            schedule: of everything.
            clock_rate: how fast its clock is.
            boot_at_ms: what its clock shows at the beginning of the run.
        """
        self.schedule = schedule
        self.clock_rate = clock_rate
        self.is_killed = self.is_paused = False
        self.paused_us = 0
        """How long it has stood still, until its last pause ended."""
        self.thread: SteppedThread | None = None
        """The one that runs now."""
        self.threads: dict[SteppedThread, None] = {}
        self._boot_at_ms = boot_at_ms
        self._paused_at_us = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def boot_ms(self) -> int:
        """Return the time of its clock, which goes on during a pause."""
        return self._boot_at_ms + int(self.schedule.now_us * self.clock_rate / 1000)

    def go_on(self, action: Callable[[], None]) -> None:
        """Do something, unless the process does nothing now or any more."""
        if self.is_killed:
            return
        if self.is_paused:
            self._waiting.append(action)
        else:
            action()

    def pause(self) -> None:
        """Stop it, as SIGSTOP does, or a machine that sleeps."""
        self.is_paused = True
        self._paused_at_us = self.schedule.now_us

    def resume(self) -> None:
        """Let it go on."""
        self.is_paused = False
        self.paused_us += self.schedule.now_us - self._paused_at_us
        while self._waiting and not self.is_paused and not self.is_killed:
            self._waiting.popleft()()

    def kill(self) -> None:
        """End it: nothing that it has begun goes on, and nothing that it has sent is taken back."""
        self.is_killed = True
        self._waiting.clear()
        for each in list(self.threads):
            each.unwind()

    def sleep(self, delay_us: float) -> None:
        """Let time pass for the thread that calls."""
        if self.is_killed:
            raise ProcessKilled
        thread = self.thread
        assert thread is not None, "only a thread may block"
        self.schedule.after(int(delay_us), partial(self.go_on, thread.step))
        thread.park()

    def wait(self, arm: Callable[[Callable[[], None]], None]) -> None:
        """Let the thread that calls wait until what `arm` gets is called, once or more often."""
        if self.is_killed:
            raise ProcessKilled
        thread, is_woken = self.thread, False
        assert thread is not None, "only a thread may block"
        step = partial(self.go_on, thread.step)

        def wake() -> None:
            nonlocal is_woken
            if not is_woken:
                is_woken = True
                self.schedule.after(0, step)

        arm(wake)
        thread.park()

    def work_us(self) -> int:
        """Draw the duration of a request on its way in one direction."""
        return self.schedule.work_us()


class _Worker:
    """A real thread, for one stepped thread after the other."""

    def __init__(self) -> None:
        self._go, self._back = Lock(), Lock()
        self._go.acquire()
        self._back.acquire()
        self.work: Callable[[], None] = lambda: None
        Thread(target=self._run, daemon=True, name="stepped").start()

    def step(self) -> None:
        """Let the thread run until it parks, or its work has ended."""
        self._go.release()
        self._back.acquire()

    def park(self) -> None:
        self._back.release()
        self._go.acquire()

    def _run(self) -> None:
        while True:
            self._go.acquire()
            self.work()
            self._back.release()


_idle_workers: list[_Worker] = []


class SteppedThread:
    """A thread of a process, from its beginning to its end."""

    def __init__(
        self,
        process: Process,
        work: Callable[[], Any],
        on_ended: Callable[[Any, Exception | None], None] = lambda _result, _error: None,
    ) -> None:
        """Begin it, after a drawn time.

        Args:
            process: whose it is.
            work: what it does.
            on_ended: gets the result, or the error, within the thread's last step.
        """
        self._process = process
        self._work = work
        self._on_ended = on_ended
        self._worker: _Worker | None = None
        process.threads[self] = None
        process.schedule.work(partial(process.go_on, self.step))

    @property
    def has_ended(self) -> bool:
        """Whether it has done its work, or was killed."""
        return self not in self._process.threads

    def step(self) -> None:
        """Run until the next request; for the loop."""
        process = self._process
        if self.has_ended:
            return
        if self._worker is None:
            self._worker = _idle_workers.pop() if _idle_workers else _Worker()
            self._worker.work = self._run
        before, process.thread = process.thread, self
        try:
            self._worker.step()
        finally:
            process.thread = before
        if self.has_ended:
            _idle_workers.append(self._worker)

    def park(self) -> None:
        """Let the loop go on; within the thread."""
        worker, process = self._worker, self._process
        assert worker is not None
        worker.park()
        if process.is_killed:
            raise ProcessKilled

    def unwind(self) -> None:
        """End it, as its process was killed."""
        if self._worker is None:
            del self._process.threads[self]
        else:
            self.step()

    def _run(self) -> None:
        try:
            result, error = self._work(), None
        except Exception as raised:  # noqa: BLE001 - `on_ended` gets it
            result, error = None, raised
        except ProcessKilled:
            del self._process.threads[self]
            return
        del self._process.threads[self]
        try:
            self._on_ended(result, error)
        except Exception as raised:  # noqa: BLE001 - a mistake of the simulation, or of a check
            self._process.schedule.interrupt(raised)


class SteppedLock:
    """In place of a lock that a thread holds during a request."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_held = False
        self._waiting: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None:
        while self._is_held:
            self._process.wait(self._waiting.append)
        self._is_held = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_held = False
        if self._waiting:
            self._waiting.popleft()()


class ProcessClock:
    """A `Clock` of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now_ms(self) -> int:
        return BEGINNING_MS + self._process.boot_ms()

    def monotonic_ms(self) -> int:
        return self._process.boot_ms()

    async def sleep(self, ms: int) -> None:
        if self._process.is_killed:
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        wake: asyncio.Future[None] = loop.create_future()
        delay_s = max(ms, 0) / 1000 / self._process.clock_rate
        timer = loop.call_later(delay_s, self._process.go_on, partial(_settle, wake, None, None))
        try:
            await wake
        finally:
            timer.cancel()


class ProcessPool:
    """A `BlockingRunner` with one thread."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._waiting: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._is_running = False

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Make the call later; it is not made if its caller was cancelled before it began."""
        if self._process.is_killed:
            raise asyncio.CancelledError
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((partial(call, *arguments), future))
        self._begin()
        return await future

    def yield_gil(self) -> None:
        """Do nothing: other threads run at every request."""

    def close(self) -> None:
        """Do nothing: what has begun ends by itself."""

    def _begin(self) -> None:
        while self._waiting and not self._is_running and not self._process.is_killed:
            call, future = self._waiting.popleft()
            if not future.cancelled():
                self._is_running = True
                SteppedThread(self._process, call, partial(self._end, future))

    def _end(self, future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        self._is_running = False
        report(self._process, future, result, error)
        self._begin()


def report(
    process: Process, future: asyncio.Future[Any], result: Any, error: Exception | None = None
) -> None:
    """Settle a future of the loop, as a thread of a process does."""
    settle = partial(_settle, future, result, error)

    def call() -> None:
        future.get_loop().call_soon_threadsafe(settle)

    process.schedule.work(partial(process.go_on, call))


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
