"""Compute worker: the main program of a compute process, and the messages on its socket.

Rule: it runs one call after the other and keeps nothing between them, except the state of a session
if its parent requests one. It ends when its parent has ended, also in the middle of a call that
never returns, after an idle time, and when a call needs more memory than the limit. It imports what
its calls need and nothing else.
Must not know: what is computed.

A message, either way:

    offset  size  name
    0       1     kind
    1       4     size of the content
    5             content, pickled

The socket carries no data. The data of a call is in shared memory that both sides have mapped from
the start, so neither side waits for the kernel to allocate pages or to map them. So are the buffers
that the pickle of a session's result leaves out (`pickle.PickleBuffer`). Larger data and results,
and the buffers of other calls, are in separate memory, whose descriptor is sent with the message.
The content of a message about buffers:

    offset  size  name
    0       4n    size of each buffer
"""

import mmap
import os
import pickle
import resource
import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from struct import Struct
from threading import Thread
from typing import Any, NamedTuple, NoReturn

HEAD = Struct(">BI")
DATA_BYTES = 4 << 20
"""Of the memory that both sides have: more than any call but that of a very large batch needs."""
AREAS = 2
AREA_BYTES = DATA_BYTES // AREAS
"""A session's next call is loaded into one area while the process reads the other one."""
SHARED_BYTES = 2 * DATA_BYTES
"""Behind the data of each area of a session, in the same order, is room for as large a result."""
ITEMS_PER_PART = 64
"""A tuple travels in parts: unpickling keeps the GIL, so no part takes long."""
_AUTOGROUP = "/proc/self/autogroup"
_AUTOGROUP_RETRY_S = 0.05
_SIZE_BYTES = 4
_BUFFERS_PER_WRITE = 1024
"""Linux takes no more in one call (IOV_MAX)."""


class Kind(IntEnum):
    """What a message is.

    READY: nothing; the process has started.
    CALL: (function, sizes of the data of each job, further arguments of each job).
    MAKE_STATE: (function, arguments); what it returns becomes the state, the answer is None.
    CALL_WITH_STATE: (function, position of the first buffer in the data, sizes of the buffers,
        further arguments, position for the buffers of the result in the shared memory).
    BUFFERS: what the PARTs and the RESULT that follow refer to, in order; they are in the memory
        that comes with it, or at the position that the call has named.
    PART: items of a tuple; more follow.
    RESULT: of one job, or the last items of it.
    ERROR: what the call raised; no results follow.
    OUT_OF_MEMORY: a text; the process ends.
    """

    CALL = 0
    PART = 1
    RESULT = 2
    ERROR = 3
    OUT_OF_MEMORY = 4
    READY = 5
    MAKE_STATE = 6
    CALL_WITH_STATE = 7
    BUFFERS = 8


class WorkerMessage(NamedTuple):
    """A message as it was received.

    Attributes:
        content: pickled, but for BUFFERS.
        memory: what came with it; empty if nothing did.
    """

    kind: Kind
    content: bytearray
    memory: memoryview


def receive(connection: socket.socket) -> WorkerMessage | None:
    """Return the next message; None when the other side has ended."""
    head, descriptors, _, _ = socket.recv_fds(connection, HEAD.size, 1, socket.MSG_CMSG_CLOEXEC)
    try:
        rest = _receive_exactly(connection, HEAD.size - len(head)) if head else None
        if rest is None:
            return None
        kind, size = HEAD.unpack(head + rest)
        content = _receive_exactly(connection, size)
        if content is None:
            return None
        return WorkerMessage(Kind(kind), content, mapped(descriptors))
    finally:
        for each in descriptors:
            os.close(each)


def make_shared_memory(size: int = 0) -> int:
    """Return the descriptor of new memory that can be sent to another process."""
    memory = os.memfd_create("kledger-compute", os.MFD_CLOEXEC)
    os.ftruncate(memory, size)
    return memory


def write_buffers(
    memory: int, buffers: Sequence[bytes | bytearray | memoryview], position: int = 0
) -> None:
    """Write buffers into memory, one after the other from a position."""
    for start in range(0, len(buffers), _BUFFERS_PER_WRITE):
        rest = [memoryview(each) for each in buffers[start : start + _BUFFERS_PER_WRITE]]
        while rest:
            written = os.pwritev(memory, rest, position)
            position += written
            while rest and written >= len(rest[0]):
                written -= len(rest.pop(0))
            if written:
                rest[0] = rest[0][written:]


def split_buffers(content: bytearray, memory: memoryview) -> list[memoryview]:
    """Return the buffers that a message of the kind BUFFERS is about, without a copy."""
    position, buffers = 0, []
    for size in _sizes_struct(len(content) // _SIZE_BYTES).unpack(content):
        buffers.append(memory[position : position + size])
        position += size
    return buffers


def serve(
    descriptor: int, memory: int, idle_s: float | None, memory_bytes_max: int, niceness: int
) -> NoReturn:
    """Make calls until there are none for some time; the process ends here.

    Args:
        descriptor: of the socket to the parent.
        memory: descriptor of the memory in which the parent writes the data of calls.
        idle_s: how long to wait for a call; None: until the parent ends.
        memory_bytes_max: how much private memory the process may have.
        niceness: by how much its priority is below its parent's.
    """
    os.nice(niceness)
    Thread(target=_lower_priority_of_session, args=(niceness,), daemon=True).start()
    _limit_memory(memory_bytes_max)
    connection = socket.socket(fileno=descriptor)
    Thread(target=_end_with_parent, args=(connection,), daemon=True).start()
    worker = _Worker(connection, memory)
    with suppress(BrokenPipeError, ConnectionResetError):
        worker.serve(idle_s)
    os._exit(0)


def _lower_priority_of_session(niceness: int) -> None:
    """Let this process wait for those of other sessions, too.

    With autogroups (`sched(7)`) Linux divides the processor between sessions, and the niceness of a
    process counts only within its own. Of a session it is set in a file, by a process without
    rights at most every tenth of a second in the whole system; until then it is EAGAIN. Calls do
    not wait for that.
    """
    while True:
        try:
            with open(_AUTOGROUP, "w", encoding="ascii") as autogroup:
                autogroup.write(str(niceness))
        except BlockingIOError:
            time.sleep(_AUTOGROUP_RETRY_S)
            continue
        except OSError:
            pass  # there are no autogroups
        return


def _limit_memory(bytes_max: int) -> None:
    _, present = resource.getrlimit(resource.RLIMIT_DATA)
    limit = bytes_max if present == resource.RLIM_INFINITY else min(bytes_max, present)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _end_with_parent(connection: socket.socket) -> NoReturn:
    """Wait until the parent's end of the connection is closed, and end the process."""
    hung_up = select.poll()
    hung_up.register(connection, 0)
    hung_up.poll()
    os._exit(0)


def _pause() -> None:
    """Do nothing: a call in a process of its own delays no other thread."""


class _Worker:
    """The calls that come over one connection, and the state of its session."""

    def __init__(self, connection: socket.socket, memory: int) -> None:
        self._connection = connection
        self._memory = memory
        self._shared = mapped([memory])
        self._state: Any = None

    def serve(self, idle_s: float | None) -> None:
        """See `serve`; return when there are no calls."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        timeout_ms = None if idle_s is None else idle_s * 1000
        self._send(Kind.READY, None)
        while poll.poll(timeout_ms) and self._serve_one():
            pass

    def _serve_one(self) -> bool:
        """Make one call, and send what it returns; False when there is none."""
        message = receive(self._connection)
        if message is None:
            return False
        try:
            self._call(message)
        except MemoryError:
            self._state = None
            self._send(Kind.OUT_OF_MEMORY, "it needs more memory than the limit")
            return False
        except ConnectionError:
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it
            self._send(Kind.ERROR, error)
        return True

    def _call(self, message: WorkerMessage) -> None:
        found = pickle.loads(message.content)  # noqa: S301 - from our own parent
        data = message.memory or self._shared
        match message.kind:
            case Kind.CALL:
                call, sizes, arguments = found
                start = 0
                for size, rest in zip(sizes, arguments, strict=True):
                    self._send_result(call(data[start : start + size], *rest, _pause))
                    start += size
            case Kind.MAKE_STATE:
                make_state, arguments = found
                self._state = make_state(*arguments)
                self._send_result(None)
            case Kind.CALL_WITH_STATE:
                call, start, sizes, arguments, result_start = found
                whole = data[start : start + sum(sizes)]
                result = call(self._state, whole, sizes, *arguments, _pause)
                self._send_result(result, result_start)
            case _:
                raise AssertionError(f"not a call: {message.kind}")

    def _send_result(self, result: Any, buffers_start: int | None = None) -> None:
        parts = [result]
        if type(result) is tuple and len(result) > ITEMS_PER_PART:
            starts = range(0, len(result), ITEMS_PER_PART)
            parts = [result[start : start + ITEMS_PER_PART] for start in starts]
        left_out: list[pickle.PickleBuffer] = []
        *pickled, last = [
            pickle.dumps(each, protocol=5, buffer_callback=left_out.append) for each in parts
        ]
        if left_out:
            self._send_buffers([each.raw() for each in left_out], buffers_start)
        for each in pickled:
            self._send_pickled(Kind.PART, each)
        self._send_pickled(Kind.RESULT, last)

    def _send(self, kind: Kind, content: Any) -> None:
        self._send_pickled(kind, pickle.dumps(content))

    def _send_pickled(self, kind: Kind, content: bytes) -> None:
        self._connection.sendall(HEAD.pack(kind, len(content)) + content)

    def _send_buffers(self, buffers: Sequence[memoryview], start: int | None) -> None:
        sizes = [*map(len, buffers)]
        content = _sizes_struct(len(buffers)).pack(*sizes)
        if start is not None and sum(sizes) <= AREA_BYTES:
            write_buffers(self._memory, buffers, start)
            self._send_pickled(Kind.BUFFERS, content)
            return
        memory = make_shared_memory()
        try:
            write_buffers(memory, buffers)
            head = HEAD.pack(Kind.BUFFERS, len(content))
            socket.send_fds(self._connection, [head], [memory])
        finally:
            os.close(memory)
        self._connection.sendall(content)


def _sizes_struct(count: int) -> Struct:
    return Struct(f">{count}I")


def mapped(descriptors: Sequence[int]) -> memoryview:
    """Return the memory of a descriptor, read-only; it stays until the view is gone."""
    for memory in descriptors:
        if os.fstat(memory).st_size:
            return memoryview(mmap.mmap(memory, 0, prot=mmap.PROT_READ))
    return memoryview(b"")


def _receive_exactly(connection: socket.socket, size: int) -> bytearray | None:
    content = bytearray(size)
    view = memoryview(content)
    while view:
        count = connection.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return content
