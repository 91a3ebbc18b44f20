"""Calls that compute processes make in tests; like real ones they load little."""

import os
import signal
import sys
from importlib import import_module

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


def refuse(data: Buffer, pause: Pause) -> None:
    raise Refusal("no", (3, 4))


def die(data: Buffer, pause: Pause) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def never_return(data: Buffer, path: str, pause: Pause) -> None:
    """Write the process id into a file, and go on until the parent ends."""
    with open(f"{path}.new", "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    os.rename(f"{path}.new", path)
    while True:
        pause()


def allocate(data: Buffer, size: int, pause: Pause) -> int:
    return len(bytearray(size))


def loaded_with(data: Buffer, module: str, pause: Pause) -> list[str]:
    """Return the names of all modules that are loaded once a module is."""
    import_module(module)
    return sorted(sys.modules)
