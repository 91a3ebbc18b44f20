"""Entry log: appends groups to numbered files, one write per group, and syncs them.

Rule: bytes are only ever added after the last whole group. A failed write is cut off again; a
failed sync, or a failed cut, leaves an unknown state and ends all writing.
Must not know: the index, the content of a group beyond its frames.

A sync is cheapest when it covers only blocks that the file owned and had written before, because
then no metadata of the file system changes. Therefore a small synced group is written with zeros
after it once in a while, and the next groups overwrite these. A reader takes zeros after the last
group for the end of the log. Figures: docs/decisions/0002.
"""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from kledger.ledger.engine.base import Buffer, CommitGroup
from kledger.ledger.engine.errors import FULL_ERRORS, StorageWriteFailed, SyncFailed
from kledger.ledger.engine.log.frames import GroupEncoder
from kledger.ledger.engine.log.log_files import LogFiles

FILE_BYTES_MAX = 256 * 1024 * 1024
"""A file takes no further group when it has reached this size."""
ZERO_AHEAD_BYTES = 512 * 1024
ZERO_AHEAD_GROUP_BYTES_MAX = 96 * 1024
"""For larger groups the zeros cost more than they save."""
BUFFERS_PER_WRITE_MAX = 1024

_ZEROS = bytes(64 * 1024)


class LogEnd(NamedTuple):
    """The end of a group: where the next one begins, and the number of this one."""

    file: int
    position: int
    group: int


class PlacedGroup(NamedTuple):
    """A group in the log; its frames are contiguous from `start`, in the order of the group."""

    group: CommitGroup
    start: int
    end: LogEnd
    frame_count: int


class EntryLog:
    """The log from its current end on.

    `append` is called in one thread at a time; `sync` may run in another at the same time.
    """

    def __init__(
        self, files: LogFiles, end: LogEnd, *, file_bytes_max: int = FILE_BYTES_MAX
    ) -> None:
        """Continue at `end`, the synced end of an existing file."""
        self.end = end
        self.synced_end = end
        self._files = files
        self._file_bytes_max = file_bytes_max
        self._encoder = GroupEncoder()
        self._descriptor = files.borrow(end.file)
        self._zeroed_to = end.position
        self._lock = Lock()
        self._sync_lock = Lock()
        self._unsynced_files: tuple[int, ...] = ()  # full, still borrowed
        self._is_folder_synced = True
        self._failure: str | None = None

    def append(self, group: CommitGroup, *, sync_follows: bool) -> PlacedGroup:
        """Write a group after the last one.

        Raises:
            StorageWriteFailed: the log ends where it ended before.
            SyncFailed: a failed write could not be cut off, or an earlier failure ended writing.
        """
        self._refuse_after_failure()
        if self.end.position >= self._file_bytes_max or (group.seals and self.end.position):
            self._rotate()
        file, start, number = self.end
        encoder = self._encoder
        buffers = encoder.encode(group, file, start, number + 1, self.synced_end.group)
        size = encoder.size
        position = start + size
        try:
            if position <= self._zeroed_to or not sync_follows or size > ZERO_AHEAD_GROUP_BYTES_MAX:
                written = _write(self._descriptor, buffers, start)
            else:
                written = self._write_with_zeros(buffers, size)
            if written < size:
                _write_rest(self._descriptor, buffers, start, written)
        except OSError as error:
            self._cut_back(start)
            raise _write_failed(error) from error
        self.end = end = LogEnd(file, position, number + 1)
        return PlacedGroup(group, start, end, encoder.frame_count)

    def sync(self) -> None:
        """Make every group durable that was appended before the call.

        Raises:
            SyncFailed: it is unknown which groups are durable.
        """
        with self._sync_lock:
            self._refuse_after_failure()
            with self._lock:
                end, rotated = self.end, self._unsynced_files
            try:
                for file in (*rotated, end.file):
                    with self._files.use(file) as descriptor:
                        os.fdatasync(descriptor)
                if not self._is_folder_synced:
                    self._is_folder_synced = True
                    self._files.sync_folder()
            except OSError as error:
                raise SyncFailed(self._fail(f"the log could not be synced: {error}")) from error
            with self._lock:
                self.synced_end = end
                self._unsynced_files = self._unsynced_files[len(rotated) :]
            for file in rotated:
                self._files.give_back(file)

    def sync_current(self) -> None:
        """Do the same in the thread that appends; usually one system call."""
        if self._unsynced_files or not self._is_folder_synced:
            self.sync()
            return
        end = self.end
        with self._sync_lock:  # the system reports an error once: no sync during a failing one
            self._refuse_after_failure()
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                raise SyncFailed(self._fail(f"the log could not be synced: {error}")) from error
            self.synced_end = end

    def refuse(self, reason: str) -> None:
        """End all writing."""
        self._fail(reason)

    def close(self) -> None:
        """Return the files, without the zeros after the last group; nothing is synced."""
        if self._zeroed_to > self.end.position and self._descriptor >= 0:
            with suppress(OSError):  # they do no harm
                os.ftruncate(self._descriptor, self.end.position)
        self._descriptor = -1
        for file in (*self._unsynced_files, self.end.file):
            self._files.give_back(file)
        self._unsynced_files = ()

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise SyncFailed(self._failure)

    def _fail(self, reason: str) -> str:
        self._failure = self._failure or reason
        return self._failure

    def _write_with_zeros(self, buffers: list[Buffer], size: int) -> int:
        """Write a group and zeros after it, or the group alone if there is no space for both."""
        start = self.end.position
        zeros = [_ZEROS] * (ZERO_AHEAD_BYTES // len(_ZEROS))
        try:
            written = _write(self._descriptor, [*buffers, *zeros], start)
        except OSError as error:
            if error.errno not in FULL_ERRORS:
                raise
            return _write(self._descriptor, buffers, start)
        self._zeroed_to = max(start + written, self._zeroed_to)
        return min(written, size)

    def _cut_back(self, position: int) -> None:
        """Remove the bytes of a failed write, so that they can never be taken for a group."""
        try:
            os.ftruncate(self._descriptor, position)
        except OSError as error:
            reason = f"a failed write could not be undone: {error}"
            raise SyncFailed(self._fail(reason)) from error
        self._zeroed_to = position

    def _rotate(self) -> None:
        """Continue in a new file. The next sync covers the old one."""
        file, position, group = self.end
        try:
            self._files.create(file + 1)
            descriptor = self._files.borrow(file + 1)
            if self._zeroed_to > position:
                os.ftruncate(self._descriptor, position)
        except OSError as error:
            self._files.remove(file + 1)
            raise _write_failed(error) from error
        with self._lock:
            self._is_folder_synced = False
            self._unsynced_files = (*self._unsynced_files, file)
            self.end = LogEnd(file + 1, 0, group)
        self._descriptor, self._zeroed_to = descriptor, 0


def _write(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write as much as one system call takes."""
    if len(buffers) == 1:
        return os.pwrite(descriptor, buffers[0], position)
    if len(buffers) <= BUFFERS_PER_WRITE_MAX:
        return os.pwritev(descriptor, buffers, position)
    return os.pwritev(descriptor, buffers[:BUFFERS_PER_WRITE_MAX], position)


def _write_rest(descriptor: int, buffers: Sequence[Buffer], position: int, written: int) -> None:
    """Write the rest after a write that took only the first `written` bytes."""
    rest = [memoryview(each) for each in buffers]
    first = 0
    while True:
        position += written
        while first < len(rest) and written >= len(rest[first]):
            written -= len(rest[first])
            first += 1
        if first == len(rest):
            return
        rest[first] = rest[first][written:]
        written = _write(descriptor, rest[first : first + BUFFERS_PER_WRITE_MAX], position)
        if written == 0:
            raise OSError(errno.EIO, "the file system wrote nothing")


def _write_failed(error: OSError) -> StorageWriteFailed:
    is_full = error.errno in FULL_ERRORS
    return StorageWriteFailed(f"the log could not be written: {error}", full=is_full)
