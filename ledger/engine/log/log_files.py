"""Log files: the numbered files of an entry log, and their descriptors.

Rule: a borrowed descriptor stays open until it is returned, even if the file is removed; at most
OPEN_FILES_MAX others stay open. Any thread may borrow.
Must not know: the content of files.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

OPEN_FILES_MAX = 64
_NAME = re.compile(r"(\d{8})\.log")


def number_in(name: str) -> int | None:
    """Return the number in the name of a log file; None for other names."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(slots=True)
class _OpenFile:
    descriptor: int
    borrowers: int = 0
    is_removed: bool = False


class LogFiles:
    """The files `NNNNNNNN.log` of one folder."""

    def __init__(self, folder: Path, *, is_read_only: bool = False) -> None:
        self.folder = folder
        self._flags = os.O_CLOEXEC | (os.O_RDONLY if is_read_only else os.O_RDWR)
        self._lock = Lock()
        self._open: dict[int, _OpenFile] = {}

    def numbers(self) -> list[int]:
        """Return the numbers of the files that exist, ascending."""
        found = (number_in(name) for name in os.listdir(self.folder))
        return sorted(number for number in found if number is not None)

    def path(self, number: int) -> Path:
        """Return the path of a file, whether or not it exists."""
        return self.folder / f"{number:08d}.log"

    def size(self, number: int) -> int:
        """Return the length of a file in bytes."""
        return self.path(number).stat().st_size

    def create(self, number: int) -> None:
        """Create an empty file. Its name is durable after `sync_folder`."""
        os.close(os.open(self.path(number), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644))

    def sync_folder(self) -> None:
        """Make the names of the files durable."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def borrow(self, number: int) -> int:
        """Return the descriptor of a file; the caller ends the use with `give_back`."""
        with self._lock:
            if (file := self._open.pop(number, None)) is None:
                file = _OpenFile(os.open(self.path(number), self._flags))
            self._open[number] = file  # the most recently used is closed last
            file.borrowers += 1
            self._close_idle(OPEN_FILES_MAX)
            return file.descriptor

    def give_back(self, number: int) -> None:
        """End one use of a descriptor."""
        with self._lock:
            file = self._open[number]
            file.borrowers -= 1
            assert file.borrowers >= 0
            if file.is_removed and not file.borrowers:
                os.close(self._open.pop(number).descriptor)

    @contextmanager
    def use(self, number: int) -> Iterator[int]:
        """Borrow a descriptor for a `with` block."""
        descriptor = self.borrow(number)
        try:
            yield descriptor
        finally:
            self.give_back(number)

    def remove(self, number: int) -> None:
        """Unlink a file; borrowers can still read it."""
        self.path(number).unlink(missing_ok=True)
        with self._lock:
            if (file := self._open.get(number)) is not None:
                file.is_removed = True
                if not file.borrowers:
                    os.close(self._open.pop(number).descriptor)

    def close(self) -> None:
        """Close all descriptors that are not borrowed. May be repeated."""
        with self._lock:
            self._close_idle(0)

    def _close_idle(self, keep: int) -> None:
        surplus = len(self._open) - keep
        if surplus <= 0:
            return
        for number in [number for number, file in self._open.items() if not file.borrowers]:
            if surplus <= 0:
                return
            os.close(self._open.pop(number).descriptor)
            surplus -= 1
