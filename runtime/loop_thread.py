"""LoopThread: an event loop in a separate thread, for callers that have none.

Rule: a coroutine runs on the loop while the thread that asked for it waits; any number of threads
may ask. A caller that is interrupted cancels its coroutine. Stopping cancels what still runs.
Must not know: what runs.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401 - its callback is to be registered before ours
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


def call_at_exit(call: Callable[[], None]) -> None:
    """Call back when the process ends, while thread pools still accept work.

    Callbacks of `atexit` run too late for that. Source: concurrent.futures.thread, whose own
    callback is registered like this; the last one that was registered is called first.
    """
    threading._register_atexit(call)  # type: ignore[attr-defined]  # not in the stubs


WAKE_S = 0.5
"""A signal that comes between the last bytecode of a thread and the system call in which it waits
does not end that call, so a waiting thread looks for signals this often."""


class LoopStopped(RuntimeError):
    """The loop was stopped before the coroutine had ended."""


class LoopThread:
    """One thread with one loop; start() it once, stop() it."""

    def __init__(
        self, name: str, *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    ) -> None:
        """Args: name: of the thread."""
        self._loop_factory = loop_factory
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._submitting = threading.Lock()
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._end: asyncio.Event | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Start the thread; return when its loop runs."""
        self._thread.start()
        self._started.result()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop; return or raise what it does.

        Raises:
            LoopStopped: the loop was stopped before the coroutine had ended.
            RuntimeError: the caller runs on this loop, and would wait for itself.
        """
        # Made before it is submitted: an interrupt may come between any two steps from there on.
        call = _Call(work)
        try:
            self._submit(call)
            return _awaited(call.outcome)
        finally:
            if not call.outcome.done():
                self._abandon(call)

    def begin(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a coroutine on the loop; return its outcome at once.

        Raises:
            LoopStopped: the loop was stopped before.
        """
        call = _Call(work)
        self._submit(call)
        return call.outcome

    def stop(self) -> None:
        """Cancel what runs, and wait for the end of the thread. May be repeated."""
        with self._submitting:
            was_stopped, self._is_stopped = self._is_stopped, True
        if not was_stopped and self._thread.is_alive():
            self._started.result().call_soon_threadsafe(self._finish)
        if self._thread.is_alive():
            self._thread.join()

    def _submit(self, call: "_Call[Any]") -> None:
        problem: RuntimeError | None = None
        if threading.current_thread() is self._thread:
            problem = RuntimeError("called on the client's own loop, which it would wait for")
        with self._submitting:
            if self._is_stopped:
                problem = LoopStopped("the loop has stopped")
            if problem is None:
                self._started.result().call_soon_threadsafe(call.begin)
                return
        call.abandon()
        raise problem

    def _abandon(self, call: "_Call[Any]") -> None:
        with self._submitting:
            if not self._is_stopped:
                self._started.result().call_soon_threadsafe(call.abandon)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            runner.run(self._wait_for_end())

    async def _wait_for_end(self) -> None:
        self._end = asyncio.Event()
        self._started.set_result(asyncio.get_running_loop())
        await self._end.wait()

    def _finish(self) -> None:
        assert self._end is not None, "finished before it was started"
        self._end.set()


class _Call(Generic[Result]):
    """A coroutine that another thread waits for; all but `outcome` belongs to the loop."""

    def __init__(self, work: Coroutine[Any, Any, Result]) -> None:
        self.outcome: Future[Result] = Future()
        self._work: Coroutine[Any, Any, Result] | None = work
        self._task: asyncio.Task[Result] | None = None

    def begin(self) -> None:
        """Run it, if it was not abandoned before."""
        work, self._work = self._work, None
        if work is not None:
            self._task = asyncio.get_running_loop().create_task(work)
            self._task.add_done_callback(self._ended)

    def abandon(self) -> None:
        """Cancel it, or do not begin it: its caller has stopped waiting."""
        work, self._work = self._work, None
        if work is not None:
            work.close()
        elif self._task is not None:
            self._task.cancel()

    def _ended(self, task: "asyncio.Task[Result]") -> None:
        if task.cancelled():
            self.outcome.set_exception(LoopStopped("the loop was stopped meanwhile"))
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


def _awaited(outcome: Future[Result]) -> Result:
    """Wait for a result; return or raise it."""
    while True:
        try:
            return outcome.result(WAKE_S)
        except TimeoutError:  # of the wait, or the outcome itself
            if outcome.done():
                return outcome.result()
