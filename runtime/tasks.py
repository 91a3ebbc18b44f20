"""Supervisor: the owner of every background task.

Rule: no task is forgotten. One that ends with an exception is reported to `on_crash`, and the
server stops on that; one that still runs when the supervisor closes is cancelled and awaited.
Must not know: what the tasks do.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Supervisor:
    """Starts tasks, keeps them alive, reports crashes, ends them together."""

    def __init__(self, on_crash: Callable[[BaseException], None] | None = None) -> None:
        """Args: on_crash: called on the loop, once per crashed task, after it was logged."""
        self._on_crash = on_crash
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in the order of their beginning
        self._closed = False

    @property
    def task_count(self) -> int:
        """How many tasks have not ended."""
        return len(self._tasks)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called: nothing can be spawned any more."""
        return self._closed

    def spawn(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Start `work` as a task of this supervisor; `name` stands in the log if it crashes.

        Raises:
            RuntimeError: the supervisor is closed; `work` was closed too and never runs.
        """
        task = self._start(work, name)
        task.add_done_callback(self._task_ended)
        return task

    async def finish(self, work: Coroutine[Any, Any, Result], name: str) -> Result:
        """Wait for `work` that must not stop halfway; return or raise what it does.

        When the caller is cancelled, the work goes on to its end without it. What it raises is the
        caller's to hear of, and no crash.

        Raises:
            RuntimeError: the supervisor is closed; `work` was closed too and never runs.
        """
        task = self._start(work, name)
        task.add_done_callback(self._work_finished)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel what still runs and wait for its end. May be repeated."""
        self._closed = True
        current = asyncio.current_task()
        while remaining := [task for task in self._tasks if task is not current]:
            for task in remaining:
                task.cancel()
            await asyncio.wait(remaining)
            # Done callbacks run one loop turn after the task ended; without this turn the same
            # finished tasks would be seen again.
            await asyncio.sleep(0)

    def _start(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        if self._closed:
            work.close()
            raise RuntimeError(f"supervisor is closed, cannot start {name}")
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        return task

    def _work_finished(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # a caller that was cancelled does not come for it

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        logger.error("background task %s crashed", task.get_name(), exc_info=error)
        if self._on_crash is not None:
            self._on_crash(error)
