"""ComputeProcesses: child interpreters for calls that compute for long.

Rule: a call is a function of a module, and gets its data in shared memory: only the other arguments
and the result are pickled. It has no side effects, so any process may run it. A process starts with
the first call and ends after idle minutes, or as soon as its parent has ended. Calls that share a
state have a process to themselves, a `StatefulProcess`. The event loop keeps its GIL, and its CPU,
because these processes have a lower priority.
Must not know: what is computed.
"""

import asyncio
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar, cast

from kledger.runtime.blocking import Arguments, PoolClosed
from kledger.runtime.compute_worker import (
    AREA_BYTES,
    DATA_BYTES,
    HEAD,
    SHARED_BYTES,
    Kind,
    WorkerMessage,
    make_shared_memory,
    mapped,
    receive,
    split_buffers,
    write_buffers,
)

Result = TypeVar("Result")
Pause: TypeAlias = Callable[[], None]
Buffer: TypeAlias = bytes | bytearray | memoryview

IDLE_S_MAX = 120.0
"""A process without calls ends after this time."""
MEMORY_BYTES_MAX = 512 << 20
"""The private memory of a process: 20 MiB of modules, 128 MiB of records, and the results."""
NICENESS = 10
"""Below everything else that runs with the usual priority, and above what has none."""
_ALLOCATOR = {
    "MALLOC_TRIM_THRESHOLD_": str(16 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(16 << 20),
    "MALLOC_TOP_PAD_": str(1 << 20),
}
"""glibc would give back the memory of each batch that was looked at, and get new pages for the next
one, a third of the time of a call."""
_LIBRARIES = {"OPENBLAS_NUM_THREADS": "1"}
"""numpy would start a thread for each core, with memory of its own, for what no call needs."""

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
        self._idle_s = idle_s
        self._memory_bytes_max = memory_bytes_max
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
                self.remove(process, loop)
                continue
            except (StartFailed, _Died) as error:
                raise self.removed(process, loop, error) from None
            except BaseException:
                self._give_back(process, loop)
                raise
            self._give_back(process, loop)
            return results

    def stateful(self, memory_bytes_max: int, loop: asyncio.AbstractEventLoop) -> "StatefulProcess":
        """Return a process for a session, which its `start` starts.

        Args:
            memory_bytes_max: limit of the private memory of the process.
            loop: the event loop that waits for the results.
        """
        return StatefulProcess(self, memory_bytes_max, loop)

    def close(self) -> None:
        """End all processes, whatever they do; on the event loop. May be repeated."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for each in self._running:
                each.kill()
        for each in idle:
            self.remove(each, None)

    def _take(self) -> "_Process":
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self.start(self._idle_s, self._memory_bytes_max)

    def start(self, idle_s: float | None, memory_bytes_max: int) -> "_Process":
        """Start a process that counts as running until `removed` or `remove`."""
        with self._lock:
            if self._is_closed:
                raise PoolClosed("the processes are closed")
        process = _Process(idle_s, memory_bytes_max)
        with self._lock:
            self._running.add(process)
            if self._is_closed:
                process.kill()
        return process

    def removed(
        self,
        process: "_Process",
        loop: asyncio.AbstractEventLoop,
        error: Exception,
        *,
        is_expected: bool = False,
    ) -> RuntimeError:
        """Remove a process that has ended; return the error for the caller whose call failed."""
        status = self.remove(process, loop)
        if self._is_closed:
            return PoolClosed("the processes were closed during a call")
        if isinstance(error, StartFailed):
            return error
        if not is_expected:
            logger.warning("a compute process ended with status %s: %s", status, error)
        return ComputeProcessDied(
            f"the process that made the call ended with status {status}: {error}"
        )

    def _give_back(self, process: "_Process", loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(process)
                with suppress(RuntimeError):  # the loop has ended, and `close` follows
                    loop.call_soon_threadsafe(self._watch, process, loop)
                return
        self.remove(process, loop)

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
            self.remove(process, None)

    def remove(self, process: "_Process", loop: asyncio.AbstractEventLoop | None) -> int:
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


class StatefulProcess:
    """A process that keeps a state between calls, for one thread; `kill` is for others."""

    def __init__(
        self,
        processes: ComputeProcesses,
        memory_bytes_max: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Use `ComputeProcesses.stateful`."""
        self._processes = processes
        self._memory_bytes_max = memory_bytes_max
        self._loop = loop
        self._lock = Lock()
        self._process: _Process | None = None
        self._is_killed = False

    def start(
        self, make_state: Callable[[*Arguments], object], arguments: tuple[*Arguments]
    ) -> None:
        """Start the process and make the state; blocks the thread. For once, before calls.

        Args:
            make_state: a function or class of a module.
            arguments: its arguments, which are pickled.

        Raises:
            PoolClosed: the processes were closed.
            ComputeProcessDied: the process ended in `make_state`.
            StartFailed: no process can be started.
            Exception: what `make_state` raises.
        """
        process = self._processes.start(None, self._memory_bytes_max)
        with self._lock:
            self._process = process
            if self._is_killed:
                process.kill()
        self._ask(Kind.MAKE_STATE, (make_state, arguments), NO_DATA)

    def load(self, area: int, buffers: Sequence[Buffer]) -> "LoadedData":
        """Copy the data of a call to where the process finds it; for any thread, and blocks it.

        Args:
            area: which of `AREAS` parts of the shared memory to use, if the data fits; no call
                under way has its data there.
            buffers: the data.

        Raises:
            ComputeProcessDied: the process has ended.
        """
        with self._lock:
            process = self._process
        if process is None:
            raise _session_ended()
        try:
            loaded = process.load(buffers, area * AREA_BYTES, AREA_BYTES)
            return loaded._replace(result_start=DATA_BYTES + area * AREA_BYTES)
        except _EndedIdle:
            raise _session_ended() from None

    def call(
        self,
        call: Callable[[Any, memoryview, Sequence[int], *Arguments, Pause], Result],
        data: "LoadedData",
        arguments: tuple[*Arguments],
    ) -> Result:
        """Make one call; blocks the thread.

        Args:
            call: a function of a module; gets the state, the buffers one after the other, their
                sizes, the arguments, and the pause that it makes now and then.
            data: the buffers, loaded.
            arguments: are pickled.

        Raises:
            PoolClosed: the processes were closed.
            ComputeProcessDied: the process has ended, and the state with it.
            Exception: what the call raises; the state is as the call left it.
        """
        asked = (call, data.start, data.sizes, arguments, data.result_start)
        return cast("Result", self._ask(Kind.CALL_WITH_STATE, asked, data))

    def kill(self) -> None:
        """End the process, whatever it does; a call under way raises ComputeProcessDied."""
        with self._lock:
            self._is_killed = True
            if self._process is not None:
                self._process.kill()

    def end(self) -> None:
        """End the process and wait until it has ended; blocks the thread. May be repeated."""
        process = self._taken_off()
        if process is not None:
            self._processes.remove(process, self._loop)

    def _ask(self, kind: Kind, asked: object, data: "LoadedData") -> object:
        if self._process is None:
            data.discard()
            raise _session_ended()
        try:
            (result,) = self._process.ask(kind, asked, data)
        except (StartFailed, _EndedIdle, _Died) as error:
            process = self._taken_off()
            assert process is not None, "only this thread takes it off"
            raise self._processes.removed(
                process, self._loop, error, is_expected=self._is_killed
            ) from None
        return result

    def _taken_off(self) -> "_Process | None":
        """Return the process, which `kill` does not reach any more: its id may be another's."""
        with self._lock:
            process, self._process = self._process, None
        return process


class LoadedData(NamedTuple):
    """The data of a call, where a process finds it.

    Attributes:
        start: of the first buffer.
        sizes: of all buffers, which follow each other.
        memory: descriptor of memory for this call alone; None: it is in the shared memory.
        result_start: of the room for the result in the shared memory, if the call has some.
    """

    start: int
    sizes: Sequence[int]
    memory: int | None = None
    result_start: int | None = None

    def discard(self) -> None:
        """Close the separate memory: it was sent, or never will be."""
        if self.memory is not None:
            os.close(self.memory)


NO_DATA: Final = LoadedData(0, ())


def _session_ended() -> ComputeProcessDied:
    return ComputeProcessDied("the process of the session has ended")


class _EndedIdle(Exception):
    """The process had ended before the call reached it."""


class _Died(Exception):
    """The process ended during a call."""


class _Process:
    """One process, the socket of its calls, and a pipe that closes when it ends.

    The socket blocks: only threads use it. The event loop watches the pipe.
    """

    def __init__(self, idle_s: float | None, memory_bytes_max: int) -> None:
        self._watching: asyncio.AbstractEventLoop | None = None
        self._is_ready = False
        self._memory_lock = Lock()
        """Held while the memory is written: its descriptor may be another's after `disconnect`."""
        self._is_disconnected = False
        self._socket, theirs = socket.socketpair()
        self._pipe, their_pipe = os.pipe()
        self._memory = make_shared_memory(SHARED_BYTES)
        self._shared = mapped([self._memory])
        arguments = f"{theirs.fileno()}, {self._memory}, {idle_s}, {memory_bytes_max}, {NICENESS}"
        module = receive.__module__
        program = _START.format(path=sys.path, module=module, arguments=arguments)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), their_pipe, self._memory],
                env=os.environ | _ALLOCATOR | _LIBRARIES,
                start_new_session=True,  # Ctrl-C is for the server, which ends this one
            )
        except OSError as error:
            self.disconnect()
            raise StartFailed(f"no process can be started: {error}") from error
        finally:
            theirs.close()
            os.close(their_pipe)

    @property
    def process_id(self) -> int:
        return self._process.pid

    def map(self, call: Callable[..., Result], jobs: Sequence[tuple[Any, ...]]) -> list[Result]:
        """See `ComputeProcesses.map`. Raises StartFailed, _EndedIdle, _Died."""
        data = [data for data, *_ in jobs]
        arguments = [arguments for _, *arguments in jobs]
        asked = (call, [len(each) for each in data], arguments)
        # The process has answered every call, so it reads nothing.
        return self.ask(Kind.CALL, asked, self.load(data), len(jobs))

    def load(
        self, data: Sequence[Buffer], start: int = 0, bytes_max: int = DATA_BYTES
    ) -> "LoadedData":
        """Write data into the shared memory, or, if there is not enough of it, into new memory.

        Args:
            data: to write.
            start: where in the shared memory.
            bytes_max: how much of it.

        Raises:
            _EndedIdle: the process has ended.
        """
        sizes = [len(each) for each in data]
        if sum(sizes) <= bytes_max:
            with self._memory_lock:
                if self._is_disconnected:
                    raise _EndedIdle("before its data was there")
                write_buffers(self._memory, data, start)
            return LoadedData(start, sizes)
        memory = make_shared_memory()
        try:
            write_buffers(memory, data)
        except BaseException:
            os.close(memory)
            raise
        return LoadedData(0, sizes, memory)

    def ask(self, kind: Kind, asked: object, data: "LoadedData", count: int = 1) -> list[Any]:
        """Send one message with its data; return as many results. Raises as `map`."""
        content = pickle.dumps(asked)
        was_ready = self._is_ready
        try:
            self._send(kind, content, data)
            self._is_ready = was_ready or receive(self._socket) is not None
            first = receive(self._socket) if self._is_ready else None
        except (BrokenPipeError, ConnectionResetError):  # it ended before it read everything
            if was_ready:
                raise _EndedIdle("between two calls") from None
            first = None
        if first is None:
            status = self._process.wait()
            if not self._is_ready:
                raise StartFailed(f"a process ended at its start with status {status}")
            raise _Died("it did not answer")
        return self._results(first, count, data.result_start)

    def kill(self) -> None:
        """End the process; a thread that waits for its result continues."""
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
        with self._memory_lock:
            self._is_disconnected = True
            os.close(self._memory)

    def _send(self, kind: Kind, content: bytes, data: "LoadedData") -> None:
        head = HEAD.pack(kind, len(content))
        if data.memory is None:
            self._socket.sendall(head + content)
            return
        try:
            socket.send_fds(self._socket, [head], [data.memory])
        finally:
            data.discard()
        self._socket.sendall(content)

    def _results(self, answer: WorkerMessage, count: int, buffers_start: int | None) -> list[Any]:
        results: list[Any] = []
        parts: list[Any] = []
        buffers: Iterator[memoryview] = iter(())
        while True:
            kind, content, memory = answer
            if kind == Kind.BUFFERS:
                buffers = iter(split_buffers(content, memory or self._shared[buffers_start:]))
            else:
                found = pickle.loads(content, buffers=buffers)  # noqa: S301 - from our own child
            match kind:
                case Kind.BUFFERS:
                    pass
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
                case _:
                    raise AssertionError(f"not an answer: {kind}")
            following = receive(self._socket)
            if following is None:
                raise _Died("between two answers")
            answer = following


def _is_frozen() -> bool:
    """Return whether `sys.executable` is a frozen program instead of a Python interpreter."""
    return bool(getattr(sys, "frozen", False))
