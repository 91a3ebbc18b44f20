"""WorkerProcesses: the parent of all workers, which serves no client itself.

Rule: it performs what `WorkersState` decides. Two pipes join it with each worker: at the end of the
worker's standard output the worker has died, at the end of the worker's standard input the parent
has. Each worker is a session leader: Ctrl-C reaches only the parent, which stops them in order.
Must not know: settings, addresses, what a worker serves.
"""

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, assert_never

from kledger.runtime.clock import Clock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.workers.workers_state import (
    FAILED,
    AnnounceReady,
    EndWorkers,
    KillWorkers,
    Leave,
    StartWorker,
    WorkersEffect,
    WorkersState,
)

logger = logging.getLogger(__name__)

READY: Final = b"kledger ready "
OUTPUT_BYTES_MAX: Final = 64 * 1024
"""Of the line that says that a worker is ready; more is not read before its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """How the process of a worker is started.

    Attributes:
        words: program and arguments.
        content: what it reads from its standard input.
        environment: its variables.
    """

    words: Sequence[str]
    content: bytes
    environment: dict[str, str]


class WorkerProcesses:
    """The processes of all workers; `run` them once."""

    def __init__(
        self,
        commands: Sequence[WorkerCommand],
        *,
        on_ready: Callable[[], None],
        clock: Clock,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            commands: of the workers.
            on_ready: called once, when all are ready.
            clock: for the delays of starts.
        """
        self._commands = commands
        self._on_ready = on_ready
        self._state = WorkersState(len(commands))
        self._processes: dict[int, _WorkerProcess] = {}
        self._supervisor = Supervisor(self._crashed)
        self._timers = Timers(clock, self._supervisor)
        self._code: asyncio.Future[int] | None = None

    async def run(self, signals: Iterable[signal.Signals]) -> int:
        """Start all workers and keep them running; return the exit code of the parent.

        Args:
            signals: that end them, at the second time at once.
        """
        loop = asyncio.get_running_loop()
        self._code = loop.create_future()
        loop.set_exception_handler(lambda _, context: self._failed(context))
        for number in signals:
            loop.add_signal_handler(number, self._signalled, number)
        try:
            self._perform(self._state.begin())
            return await self._code
        finally:
            while self._processes:
                _, process = self._processes.popitem()
                process.kill()
                process.close()
            await self._supervisor.close()

    @property
    def process_ids(self) -> dict[int, int]:
        """The processes that run, by worker."""
        return {index: each.process_id for index, each in self._processes.items()}

    def _signalled(self, number: signal.Signals) -> None:
        logger.info("stopping%s: %s", " at once" if self._state.is_stopping else "", number.name)
        self._perform(self._state.signalled())

    def _perform(self, effects: Iterable[WorkersEffect]) -> None:
        for effect in effects:
            match effect:
                case StartWorker(index, 0):
                    self._start(index)
                case StartWorker(index, after_ms):
                    self._timers.call_after(after_ms, partial(self._start_again, index))
                case EndWorkers():
                    for process in self._processes.values():
                        process.terminate()
                case KillWorkers():
                    for process in self._processes.values():
                        process.kill()
                case AnnounceReady():
                    self._on_ready()
                case Leave(code):
                    self._leave(code)
                case _:
                    assert_never(effect)

    def _start_again(self, index: int) -> None:
        if self._state.restarted(index):
            self._start(index)

    def _start(self, index: int) -> None:
        """Start a process; one that cannot be started has died before it was ready."""
        try:
            process = _WorkerProcess(self._commands[index])
        except OSError as error:
            # In a later tick, as the start may be one of several effects.
            asyncio.get_running_loop().call_soon(self._not_started, index, error)
            return
        self._processes[index] = process
        process.watch(on_ready=partial(self._ready, index), on_ended=partial(self._ended, index))

    def _ready(self, index: int, addresses: str) -> None:
        process_id = self._processes[index].process_id
        logger.info("worker %d is ready: %s, process %d", index, addresses, process_id)
        if not self._state.is_stopping:
            self._perform(self._state.ready(index))

    def _ended(self, index: int, status: int) -> None:
        process = self._processes.pop(index)
        process.close()
        if status or not self._state.is_stopping:
            ended_by = f"exit code {status}" if status >= 0 else f"signal {-status}"
            logger.warning("worker %d, process %d: %s", index, process.process_id, ended_by)
        self._perform(self._state.ended(index, status))

    def _not_started(self, index: int, error: OSError) -> None:
        logger.error("worker %d: no process can be started: %s", index, error)
        self._perform(self._state.ended(index, -signal.SIGKILL))

    def _failed(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        logger.error("%s", context["message"], exc_info=error)
        self._leave(FAILED)

    def _crashed(self, error: BaseException) -> None:
        """End; the supervisor has logged the error."""
        self._leave(FAILED)

    def _leave(self, code: int) -> None:
        assert self._code is not None, "not running"
        if not self._code.done():
            self._code.set_result(code)


class _WorkerProcess:
    """One process and its two pipes."""

    def __init__(self, command: WorkerCommand) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        self._process = subprocess.Popen(
            command.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=command.environment,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._read = bytearray()
        self._is_ready = False
        self._loop: asyncio.AbstractEventLoop | None = None
        # One that has died already is noticed by the end of its output.
        with suppress(BrokenPipeError):
            rest = memoryview(command.content)
            while rest:
                rest = rest[os.write(self._input.fileno(), rest) :]

    @property
    def process_id(self) -> int:
        return self._process.pid

    def watch(self, *, on_ready: Callable[[str], None], on_ended: Callable[[int], None]) -> None:
        """Call back with the text behind READY, and with the status when it has ended."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._output, self._readable, on_ready, on_ended)

    def terminate(self) -> None:
        """Let it end in order."""
        self._process.terminate()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def close(self) -> None:
        """Wait for the process, which has ended or will do so in a moment, and close the pipes."""
        if self._loop is not None:
            self._loop.remove_reader(self._output)
        self._process.wait()
        self._input.close()
        self._output.close()

    def _readable(self, on_ready: Callable[[str], None], on_ended: Callable[[int], None]) -> None:
        part = os.read(self._output.fileno(), OUTPUT_BYTES_MAX)
        if not part:
            # The kernel closes the files of a process just before it can be waited for.
            on_ended(self._process.wait())
            return
        if self._is_ready or len(self._read) > OUTPUT_BYTES_MAX:
            return
        self._read += part
        line, newline, _ = bytes(self._read).partition(b"\n")
        if newline and line.startswith(READY):
            self._is_ready = True
            on_ready(line.removeprefix(READY).decode())
