"""Compute worker: the main program of a compute process, and the messages on its socket.

Rule: it makes one call after the other and keeps nothing between them but the state of a session,
if its parent has it make one. It ends when its parent has ended (also in the middle of a call, at
the next pause), after an idle time, and when a call needs more memory than the limit. It loads what
its calls need and nothing else.
Must not know: what is computed.

A message, either way:

    offset  size  name
    0       1     kind
    1       4     size of the content
    5             content, pickled; beside a call the descriptor of memory that has its data

Buffers that the pickle of a result leaves out (`pickle.PickleBuffer`) travel as they are, in a
message before it: they are not copied under the GIL. The content of that:

    offset  size  name
    0       4     count
    4       4n    size of each buffer
    4+4n          the buffers
"""

import mmap
import os
import pickle
import resource
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from struct import Struct
from typing import Any, NoReturn

HEAD = Struct(">BI")
_COUNT = Struct(">I")

ITEMS_PER_PART = 64
"""A tuple travels in parts: unpickling keeps the GIL, so no part takes long."""


class Kind(IntEnum):
    """What a message is.

    READY: nothing; the process has started.
    CALL: (function, sizes of the data of each job, further arguments of each job).
    MAKE_STATE: (function, arguments); what it returns becomes the state, the answer is None.
    CALL_WITH_STATE: (function, sizes of the buffers in the data, further arguments).
    BUFFERS: what the next PART or RESULT refers to.
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


def receive(connection: socket.socket) -> tuple[Kind, bytearray] | None:
    """Return the next message; None when the other side has ended."""
    head = _receive_exactly(connection, HEAD.size)
    if head is None:
        return None
    kind, size = HEAD.unpack(head)
    content = _receive_exactly(connection, size)
    return None if content is None else (Kind(kind), content)


def split_buffers(content: bytearray) -> list[memoryview]:
    """Return the parts of the content of BUFFERS; writable, without a copy."""
    (count,) = _COUNT.unpack_from(content)
    sizes = Struct(f">{count}I").unpack_from(content, _COUNT.size)
    view, position, buffers = memoryview(content), _COUNT.size * (1 + count), []
    for size in sizes:
        buffers.append(view[position : position + size])
        position += size
    return buffers


def serve(descriptor: int, idle_s: float | None, memory_bytes_max: int, niceness: int) -> NoReturn:
    """Make calls until there are none for some time; the process ends here.

    Args:
        descriptor: of the socket to the parent.
        idle_s: how long to wait for a call; None: until the parent ends.
        memory_bytes_max: how much private memory the process may have.
        niceness: by how much its priority is below its parent's.
    """
    os.nice(niceness)
    _limit_memory(memory_bytes_max)
    worker = _Worker(socket.socket(fileno=descriptor))
    with suppress(BrokenPipeError, ConnectionResetError):
        worker.serve(idle_s)
    os._exit(0)


def _limit_memory(bytes_max: int) -> None:
    _, present = resource.getrlimit(resource.RLIMIT_DATA)
    limit = bytes_max if present == resource.RLIM_INFINITY else min(bytes_max, present)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


class _Worker:
    """The calls that come over one connection, and the state of its session."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._hung_up = select.poll()
        self._hung_up.register(connection, 0)
        self._state: Any = None

    def serve(self, idle_s: float | None) -> None:
        """See `serve`; return when there are no calls."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        timeout_ms = None if idle_s is None else idle_s * 1000
        self._send(Kind.READY, None)
        while poll.poll(timeout_ms) and self._serve_one():
            pass

    def pause(self) -> None:
        """End the process if its parent has ended."""
        if self._hung_up.poll(0):
            os._exit(0)

    def _serve_one(self) -> bool:
        """Make one call, and send what it returns; False when there is none."""
        head, descriptors, _, _ = socket.recv_fds(self._connection, HEAD.size, 1)
        if not head:
            return False
        memory = descriptors[0]
        try:
            kind, size = HEAD.unpack(head)
            content = _receive_exactly(self._connection, size)
            if content is None:
                return False
            size = os.fstat(memory).st_size
            data = memoryview(mmap.mmap(memory, 0, prot=mmap.PROT_READ) if size else b"")
        finally:
            os.close(memory)
        try:
            self._call(Kind(kind), content, data)
        except MemoryError:
            self._state = None
            self._send(Kind.OUT_OF_MEMORY, "it needs more memory than the limit")
            return False
        except ConnectionError:
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it
            self._send(Kind.ERROR, error)
        return True

    def _call(self, kind: Kind, content: bytearray, data: memoryview) -> None:
        found = pickle.loads(content)  # noqa: S301 - from our own parent
        match kind:
            case Kind.CALL:
                call, sizes, arguments = found
                start = 0
                for size, rest in zip(sizes, arguments, strict=True):
                    self._send_result(call(data[start : start + size], *rest, self.pause))
                    start += size
            case Kind.MAKE_STATE:
                make_state, arguments = found
                self._state = make_state(*arguments)
                self._send_result(None)
            case Kind.CALL_WITH_STATE:
                call, sizes, arguments = found
                self._send_result(call(self._state, data, sizes, *arguments, self.pause))
            case _:
                raise AssertionError(f"not a call: {kind}")

    def _send_result(self, result: Any) -> None:
        if type(result) is tuple:
            last = max(len(result) - 1, 0) // ITEMS_PER_PART * ITEMS_PER_PART
            for start in range(0, last, ITEMS_PER_PART):
                self._send(Kind.PART, result[start : start + ITEMS_PER_PART])
            result = result[last:]
        self._send(Kind.RESULT, result)

    def _send(self, kind: Kind, content: Any) -> None:
        left_out: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(content, protocol=5, buffer_callback=left_out.append)
        if left_out:
            self._send_buffers([each.raw() for each in left_out])
        self._connection.sendall(HEAD.pack(kind, len(pickled)) + pickled)

    def _send_buffers(self, buffers: Sequence[memoryview]) -> None:
        sizes = [len(each) for each in buffers]
        head = _COUNT.pack(len(sizes)) + Struct(f">{len(sizes)}I").pack(*sizes)
        self._connection.sendall(HEAD.pack(Kind.BUFFERS, len(head) + sum(sizes)) + head)
        for each in buffers:
            self._connection.sendall(each)


def _receive_exactly(connection: socket.socket, size: int) -> bytearray | None:
    content = bytearray(size)
    view = memoryview(content)
    while view:
        count = connection.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return content
