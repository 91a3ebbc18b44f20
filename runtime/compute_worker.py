"""Compute worker: the main program of a compute process, and the messages on its socket.

Rule: it makes one call after the other and keeps nothing between them. It ends when its parent has
ended (also in the middle of a call, at the next pause), after an idle time, and when a call needs
more memory than the limit. It loads what its calls need and nothing else.
Must not know: what is computed.

A message, either way:

    offset  size  name
    0       1     kind
    1       4     size of the content
    5             content, pickled; beside a call the descriptor of memory that has its data
"""

import mmap
import os
import pickle
import resource
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from struct import Struct
from typing import Any, NoReturn

HEAD = Struct(">BI")

ITEMS_PER_PART = 64
"""A tuple travels in parts: unpickling keeps the interpreter's lock, so no part takes long."""


class Kind(IntEnum):
    """What a message is.

    READY: nothing; the process has started.
    CALL: (function, sizes of the data of each job, further arguments of each job).
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


def receive(connection: socket.socket) -> tuple[Kind, bytes] | None:
    """Return the next message; None when the other side has ended."""
    head = _receive_exactly(connection, HEAD.size)
    if head is None:
        return None
    kind, size = HEAD.unpack(head)
    content = _receive_exactly(connection, size)
    return None if content is None else (Kind(kind), bytes(content))


def serve(descriptor: int, idle_s: float, memory_bytes_max: int, niceness: int) -> NoReturn:
    """Make calls until there are none for some time; the process ends here.

    Args:
        descriptor: of the socket to the parent.
        idle_s: how long to wait for a call.
        memory_bytes_max: how much private memory the process may have.
        niceness: by how much its priority is below its parent's.
    """
    os.nice(niceness)
    _limit_memory(memory_bytes_max)
    connection = socket.socket(fileno=descriptor)
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    hung_up = select.poll()
    hung_up.register(connection, 0)

    def pause() -> None:
        """End the process if its parent has ended."""
        if hung_up.poll(0):
            os._exit(0)

    with suppress(BrokenPipeError, ConnectionResetError):
        _send(connection, Kind.READY, None)
        while poll.poll(idle_s * 1000) and _serve_one(connection, pause):
            pass
    os._exit(0)


def _limit_memory(bytes_max: int) -> None:
    _, present = resource.getrlimit(resource.RLIMIT_DATA)
    limit = bytes_max if present == resource.RLIM_INFINITY else min(bytes_max, present)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _serve_one(connection: socket.socket, pause: Callable[[], None]) -> bool:
    """Make one call, and send what it returns; False when there is none."""
    head, descriptors, _, _ = socket.recv_fds(connection, HEAD.size, 1)
    if not head:
        return False
    memory = descriptors[0]
    try:
        content = _receive_exactly(connection, HEAD.unpack(head)[1])
        if content is None:
            return False
        call, sizes, arguments = pickle.loads(content)  # noqa: S301 - from our own parent
        data = memoryview(mmap.mmap(memory, 0, prot=mmap.PROT_READ) if sum(sizes) else b"")
    finally:
        os.close(memory)
    start = 0
    try:
        for size, rest in zip(sizes, arguments, strict=True):
            _send_result(connection, call(data[start : start + size], *rest, pause))
            start += size
    except MemoryError:
        _send(connection, Kind.OUT_OF_MEMORY, "it needs more memory than the limit")
        return False
    except ConnectionError:
        return False
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it
        _send(connection, Kind.ERROR, error)
    return True


def _send_result(connection: socket.socket, result: Any) -> None:
    if type(result) is tuple:
        last = max(len(result) - 1, 0) // ITEMS_PER_PART * ITEMS_PER_PART
        for start in range(0, last, ITEMS_PER_PART):
            _send(connection, Kind.PART, result[start : start + ITEMS_PER_PART])
        result = result[last:]
    _send(connection, Kind.RESULT, result)


def _send(connection: socket.socket, kind: Kind, content: Any) -> None:
    pickled = pickle.dumps(content)
    connection.sendall(HEAD.pack(kind, len(pickled)) + pickled)


def _receive_exactly(connection: socket.socket, size: int) -> bytearray | None:
    content = bytearray(size)
    view = memoryview(content)
    while view:
        count = connection.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return content
