"""Calls that compute processes make in tests; like real ones they load little."""

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pickle import PickleBuffer

from kledger.batches.buffers import Buffer
from kledger.batches.pacing import Pause


class Refusal(Exception):
    """An error with more than its message."""

    def __init__(self, message: str, records: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.records = records


def length_and_process(data: Buffer, number: int, pause: Pause) -> tuple[int, ...]:
    pause()
    return len(data), number, os.getpid()


def reverse(data: Buffer, pause: Pause) -> bytes:
    return bytes(data)[::-1]


def numbers(data: Buffer, count: int, pause: Pause) -> tuple[tuple[int, int], ...]:
    return tuple((number, number * number) for number in range(count))


def priorities(data: Buffer, pause: Pause) -> tuple[int, str]:
    """Return the niceness of the process, and what the kernel says of its session."""
    try:
        autogroup = Path("/proc/self/autogroup").read_text(encoding="ascii")
    except OSError:
        autogroup = ""
    return os.nice(0), autogroup


def refuse(data: Buffer, pause: Pause) -> None:
    raise Refusal("no", (3, 4))


def die(data: Buffer, pause: Pause) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def never_return(data: Buffer, path: str, pause: Pause) -> None:
    """Write the process id into a file, and go on until a pause ends it."""
    _write_process_id(path)
    while True:
        pause()


def never_pause(data: Buffer, path: str, pause: Pause) -> None:
    """Write the process id into a file, and go on without a pause, as users' functions may do."""
    _write_process_id(path)
    while True:
        pass


def _write_process_id(path: str) -> None:
    with open(f"{path}.new", "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    os.rename(f"{path}.new", path)


def allocate(data: Buffer, size: int, pause: Pause) -> int:
    return len(bytearray(size))


def loaded_with(data: Buffer, module: str, pause: Pause) -> list[str]:
    """Return the names of all modules that are loaded once a module is."""
    import_module(module)
    return sorted(sys.modules)


class Log:
    """A state: what the calls of a session were given."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[bytes] = []


def append(
    log: Log, data: memoryview, sizes: Sequence[int], suffix: bytes, pause: Pause
) -> tuple[str, int, int]:
    """Append one line for each buffer; return name, count and process id."""
    position = 0
    for size in sizes:
        log.lines.append(bytes(data[position : position + size]) + suffix)
        position += size
    pause()
    return log.name, len(log.lines), os.getpid()


def append_and_refuse(log: Log, data: memoryview, sizes: Sequence[int], pause: Pause) -> None:
    log.lines.append(bytes(data))
    raise Refusal("no", (5,))


def lines(log: Log, data: memoryview, sizes: Sequence[int], pause: Pause) -> list[bytes]:
    return log.lines


def halves(
    log: Log, data: memoryview, sizes: Sequence[int], pause: Pause
) -> tuple[tuple[int, PickleBuffer], ...]:
    """Return the first half of each buffer."""
    position, found = 0, []
    for size in sizes:
        half = bytes(data[position : position + size // 2])
        found.append((size, PickleBuffer(half)))
        position += size
    return tuple(found)


def never_return_with_state(
    log: Log, data: memoryview, sizes: Sequence[int], path: str, pause: Pause
) -> None:
    never_return(data, path, pause)


def allocate_in_state(
    log: Log, data: memoryview, sizes: Sequence[int], size: int, pause: Pause
) -> int:
    return allocate(data, size, pause)


def die_with_state(log: Log, data: memoryview, sizes: Sequence[int], pause: Pause) -> None:
    die(data, pause)


def refuse_to_start() -> None:
    raise Refusal("no state", (6,))
