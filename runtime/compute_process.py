"""ComputeProcesses: interpreters of their own for calls that compute for long.

Rule: a call is a function of a module, and gets its data in shared memory: only the other arguments
and the result are pickled. It changes nothing but its result, so it may be made in any process. A
process starts with the first call and ends by itself: after idle minutes, and as soon as its parent
has ended. The event loop keeps its own interpreter lock meanwhile, and its processor, because
these processes have a lower priority.
Must not know: what is computed.
"""

import asyncio
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Self, TypeAlias, TypeVar

from kledger.runtime.blocking import Arguments, PoolClosed
from kledger.runtime.compute_worker import HEAD, Kind, receive

Result = TypeVar("Result")
Pause: TypeAlias = Callable[[], None]
Buffer: TypeAlias = bytes | bytearray | memoryview

IDLE_S_MAX = 120.0
"""A process without calls ends after this time."""
MEMORY_BYTES_MAX = 512 << 20
"""The private memory of a process: 20 MiB of its own, 128 MiB of records, and what is found."""
NICENESS = 10
"""Below everything else that runs with the usual priority, and above what has none."""

_START = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve({arguments})"

logger = logging.getLogger(__name__)


class ComputeProcessDied(RuntimeError):
    """A process ended, or ran out of memory, during a call; a retry gets another process."""


class StartFailed(RuntimeError):
    """The system allows no further process."""


class ComputeProcesses:
    """As many processes as there are calls at a time; the caller's threads limit those."""

    def __init__(
        self, *, idle_s: float = IDLE_S_MAX, memory_bytes_max: int = MEMORY_BYTES_MAX
    ) -> None:
        """Start nothing yet. Args: idle_s, memory_bytes_max: limits of each process."""
        self._limits = (idle_s, memory_bytes_max)
        self._lock = Lock()
        self._idle: list[_Process] = []
        self._running: set[_Process] = set()
        self._is_closed = False

    @classmethod
    def if_possible(cls) -> Self | None:
        """Return some if this system and this program can start them."""
        is_possible = hasattr(os, "memfd_create") and sys.executable and not _is_frozen()
        return cls() if is_possible else None

    @property
    def process_ids(self) -> list[int]:
        """Of the processes that run."""
        with self._lock:
            return [each.process_id for each in self._running]

    def map(
        self,
        call: Callable[[memoryview, *Arguments, Pause], Result],
        jobs: Sequence[tuple[Buffer, *Arguments]],
        loop: asyncio.AbstractEventLoop,
    ) -> list[Result]:
        """Make one call for each job, one after the other in one process; blocks the thread.

        Args:
            call: a function of a module; its last argument is called now and then.
            jobs: for each call its data, which must not change meanwhile, and further arguments.
            loop: the event loop that waits for the results.

        Raises:
            PoolClosed: `close` was called.
            ComputeProcessDied: the process ended during the call.
            StartFailed: there is none, and none can be started.
            Exception: what the call raises.
        """
        while True:
            process = self._take()
            try:
                results = process.map(call, jobs)
            except _EndedIdle:
                self._remove(process, loop)
                continue
            except StartFailed:
                self._remove(process, loop)
                if self._is_closed:
                    raise PoolClosed("the processes were closed during a call") from None
                raise
            except _Died as error:
                status = self._remove(process, loop)
                if self._is_closed:
                    raise PoolClosed("the processes were closed during a call") from None
                logger.warning("a compute process ended with status %s: %s", status, error)
                raise ComputeProcessDied(
                    f"the process that made the call ended with status {status}: {error}"
                ) from None
            except BaseException:
                self._give_back(process, loop)
                raise
            self._give_back(process, loop)
            return results

    def close(self) -> None:
        """End all processes, whatever they do; on the event loop. May be repeated."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for each in self._running:
                each.kill()
        for each in idle:
            self._remove(each, None)

    def _take(self) -> "_Process":
        with self._lock:
            if self._is_closed:
                raise PoolClosed("the processes are closed")
            if self._idle:
                return self._idle.pop()
        process = _Process(*self._limits)
        with self._lock:
            self._running.add(process)
            if self._is_closed:
                process.kill()
        return process

    def _give_back(self, process: "_Process", loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(process)
                with suppress(RuntimeError):  # the loop has ended, and `close` follows
                    loop.call_soon_threadsafe(self._watch, process, loop)
                return
        self._remove(process, loop)

    def _watch(self, process: "_Process", loop: asyncio.AbstractEventLoop) -> None:
        """Wait for the end of an idle process."""
        with self._lock:
            if process in self._idle:
                process.watch(loop, self._on_ended)

    def _on_ended(self, process: "_Process") -> None:
        """Remove a process that was idle; in a call, its thread does."""
        process.unwatch()
        with self._lock:
            is_idle = process in self._idle
            if is_idle:
                self._idle.remove(process)
        if is_idle:
            self._remove(process, None)

    def _remove(self, process: "_Process", loop: asyncio.AbstractEventLoop | None) -> int:
        """End a process, and return its status; `loop` is None on the event loop itself."""
        with self._lock:
            self._running.discard(process)
        status = process.end()
        if loop is None:
            process.disconnect()
        else:
            with suppress(RuntimeError):  # the loop has ended, and watches nothing
                loop.call_soon_threadsafe(process.disconnect)
        return status


class _EndedIdle(Exception):
    """The process had ended before the call reached it."""


class _Died(Exception):
    """The process ended during a call."""


class _Process:
    """One process, the socket of its calls, and a pipe that closes when it ends.

    The socket blocks: only threads use it. The event loop watches the pipe.
    """

    def __init__(self, idle_s: float, memory_bytes_max: int) -> None:
        self._watching: asyncio.AbstractEventLoop | None = None
        self._is_ready = False
        self._socket, theirs = socket.socketpair()
        self._pipe, their_pipe = os.pipe()
        arguments = f"{theirs.fileno()}, {idle_s}, {memory_bytes_max}, {NICENESS}"
        module = receive.__module__
        program = _START.format(path=sys.path, module=module, arguments=arguments)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), their_pipe],
                start_new_session=True,  # Ctrl-C is for the server, which ends this one
            )
        except OSError as error:
            self._socket.close()
            os.close(self._pipe)
            raise StartFailed(f"no process can be started: {error}") from error
        finally:
            theirs.close()
            os.close(their_pipe)

    @property
    def process_id(self) -> int:
        return self._process.pid

    def map(self, call: Callable[..., Result], jobs: Sequence[tuple[Any, ...]]) -> list[Result]:
        """See `ComputeProcesses.map`. Raises _EndedIdle, _Died."""
        sizes = [len(data) for data, *_ in jobs]
        asked = pickle.dumps((call, sizes, [arguments for _, *arguments in jobs]))
        was_ready = self._is_ready
        try:
            self._send([data for data, *_ in jobs], asked)
            self._is_ready = was_ready or receive(self._socket) is not None
            first = receive(self._socket) if self._is_ready else None
        except (BrokenPipeError, ConnectionResetError):  # it ended before it read everything
            if was_ready:
                raise _EndedIdle from None
            first = None
        if first is None:
            status = self._process.wait()
            if not self._is_ready:
                raise StartFailed(f"a process ended at its start with status {status}")
            raise _Died("it did not answer")
        return self._results(first, len(jobs))

    def kill(self) -> None:
        """End the process; a thread that waits for its result goes on."""
        self._process.kill()

    def end(self) -> int:
        """End the process; return its exit status."""
        self._process.kill()
        return self._process.wait()

    # On the event loop

    def watch(
        self, loop: asyncio.AbstractEventLoop, on_ended: Callable[["_Process"], None]
    ) -> None:
        """Call `on_ended` when the process has ended."""
        if self._watching is None:
            self._watching = loop
            loop.add_reader(self._pipe, on_ended, self)

    def unwatch(self) -> None:
        """Undo `watch`."""
        if self._watching is not None:
            self._watching.remove_reader(self._pipe)
            self._watching = None

    def disconnect(self) -> None:
        """Close what led to a process that has ended."""
        self.unwatch()
        self._socket.close()
        os.close(self._pipe)

    def _send(self, data: Sequence[Buffer], asked: bytes) -> None:
        memory = os.memfd_create("kledger-compute", os.MFD_CLOEXEC)
        try:
            for each in data:
                rest = memoryview(each)
                while rest:
                    rest = rest[os.write(memory, rest) :]
            socket.send_fds(self._socket, [HEAD.pack(Kind.CALL, len(asked))], [memory])
        finally:
            os.close(memory)
        self._socket.sendall(asked)

    def _results(self, answer: tuple[Kind, bytes], count: int) -> list[Any]:
        results: list[Any] = []
        parts: list[Any] = []
        while True:
            kind, content = answer
            found = pickle.loads(content)  # noqa: S301 - from our own child
            match kind:
                case Kind.PART:
                    parts += found
                case Kind.RESULT:
                    results.append((*parts, *found) if parts else found)
                    parts = []
                    if len(results) == count:
                        return results
                case Kind.ERROR:
                    raise found
                case Kind.OUT_OF_MEMORY:
                    raise _Died(found)
                case Kind.CALL | Kind.READY:
                    raise AssertionError(f"not an answer: {kind}")
            following = receive(self._socket)
            if following is None:
                raise _Died("between two answers")
            answer = following


def _is_frozen() -> bool:
    """Tell whether `sys.executable` is a whole program in place of a Python interpreter."""
    return bool(getattr(sys, "frozen", False))
