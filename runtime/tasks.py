"""Supervisor: the owner of every background task.

Rule: every task has an owner. A task that ends with an exception closes the unit of failure that it
was started for, before any other callback runs; without a unit it is reported to `on_crash`, and
the server stops. Tasks that still run when the supervisor closes are cancelled and awaited.
Must not know: what the tasks do.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from kledger.runtime.clock import SystemClock
from kledger.runtime.containment import Containment, FaultUnit

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Supervisor:
    """Starts tasks, keeps them alive, contains or reports crashes, ends them together.

    Attributes:
        containment: handles the faults of units, those outside of these tasks too.
    """

    def __init__(
        self,
        on_crash: Callable[[BaseException], None] | None = None,
        containment: Containment | None = None,
    ) -> None:
        """Make one without tasks.

        Args:
            on_crash: called on the loop, once per crashed task without a unit, after it was logged.
            containment: handles the faults of tasks with a unit.
        """
        self.containment = containment or Containment(SystemClock())
        self._on_crash = on_crash
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in the order of their start
        self._closed = False

    @property
    def task_count(self) -> int:
        """How many tasks have not ended."""
        return len(self._tasks)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called: `spawn` then raises."""
        return self._closed

    def spawn(
        self, work: Coroutine[Any, Any, Result], name: str, *, unit: FaultUnit | None = None
    ) -> asyncio.Task[Result]:
        """Start `work` as a task of this supervisor.

        Args:
            work: what it does.
            name: for the log line of a crash.
            unit: what a crash closes, in the step in which the task crashes: no other callback sees
                the unit half changed. None: the server cannot go on without this task.

        Returns:
            The task; awaiting it returns or raises what `work` does, contained or not.

        Raises:
            RuntimeError: the supervisor is closed; `work` was closed too and never runs.
        """
        self._check_open(work, name)
        if unit is None:
            task = self._start(work, name)
            task.add_done_callback(self._task_ended)
        else:
            task = self._start(self._contained(work, unit), name)
            task.add_done_callback(partial(self._task_of_unit_ended, work))
        return task

    async def finish(self, work: Coroutine[Any, Any, Result], name: str) -> Result:
        """Wait for `work` that must not stop halfway; return or raise what it does.

        When the caller is cancelled, the work continues to its end. What it raises goes to the
        caller and is no crash.

        Raises:
            RuntimeError: the supervisor is closed; `work` was closed too and never runs.
        """
        self._check_open(work, name)
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
            # Done callbacks run one tick after the end of a task; without this tick the loop would
            # find the same finished tasks again.
            await asyncio.sleep(0)

    def _check_open(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        if self._closed:
            work.close()
            raise RuntimeError(f"supervisor is closed, cannot start {name}")

    def _start(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        return task

    def _work_finished(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # marks it as retrieved: a cancelled caller never does

    async def _contained(self, work: Coroutine[Any, Any, Result], unit: FaultUnit) -> Result:
        try:
            return await work
        except Exception as error:
            self.containment.failed(unit, error)
            raise

    def _task_of_unit_ended(self, work: Coroutine[Any, Any, Any], task: asyncio.Task[Any]) -> None:
        work.close()  # a task that was cancelled before its first step has never awaited it
        if task.cancelled() or not isinstance(task.exception(), Exception):
            self._task_ended(task)
        else:
            del self._tasks[task]  # the fault has closed its unit already

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
