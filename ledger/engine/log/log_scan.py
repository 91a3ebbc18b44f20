"""Log scan: reads the groups after the watermark, and finds the end of the log or its damage.

Rule: a group is returned only if its commit frame and every byte of it are right; nothing after the
first damage is returned, even if it looks intact.
Must not know: the consequences of damage; that is `recovery_plan`.
"""

import os
from collections.abc import Iterator

from crc32c import crc32c

from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.log import frames
from kledger.ledger.engine.log.entry_log import LogEnd, PlacedGroup
from kledger.ledger.engine.log.frames import (
    COMMIT,
    COMMIT_SIZE,
    HEADER_SIZE,
    CommitFrame,
    FrameDamaged,
)
from kledger.ledger.engine.log.log_files import LogFiles
from kledger.ledger.engine.log.recovery_plan import LaterCommit, TailDamage, Watermark

WINDOW_BYTES = 1024 * 1024


class LogScan:
    """One pass over the log. Exhaust `groups`, then read `end`, `damage` and `later_commits`."""

    def __init__(self, files: LogFiles, watermark: Watermark) -> None:
        self.end = watermark
        self.damage: TailDamage | None = None
        self.later_commits: list[LaterCommit] = []
        self.files = files.numbers()
        self._log_files = files
        self._watermark = watermark

    def groups(self) -> Iterator[PlacedGroup]:
        """Yield every whole group after the watermark, in order, up to the first damage."""
        start = self._watermark
        files = [file for file in self.files if file >= start.file]
        if start.file not in files:
            self.damage = TailDamage(start.file, 0, "the file is missing")
            return
        for file, expected in zip(files, range(start.file, start.file + len(files)), strict=True):
            position = start.position if file == start.file else 0
            if file != expected:
                self._damaged(file - 1, 0, "the file is missing")
                return
            yield from self._groups_of(file, position)
            if self.damage is not None:
                return

    def _groups_of(self, file: int, position: int) -> Iterator[PlacedGroup]:
        with self._log_files.use(file) as descriptor:
            window = LogWindow(descriptor)
            if window.size < position:
                reason = f"the file ends there, but was durable up to {position}"
                self.damage = TailDamage(file, window.size, reason)
                return
            self.end = Watermark(file, position, self.end.group)
            while not window.is_zero_from(self.end.position):
                try:
                    placed = _read_group(window, self.end)
                except FrameDamaged as error:
                    self._damaged(file, self.end.position, str(error))
                    return
                self.end = Watermark(*placed.end)
                yield placed

    def _damaged(self, file: int, position: int, reason: str) -> None:
        """Note the damage, and search everything after it for commit frames."""
        self.damage = TailDamage(file, position, reason)
        for later in self.files:
            if later >= file:
                with self._log_files.use(later) as descriptor:
                    begin = position if later == file else 0
                    self.later_commits += find_commits(LogWindow(descriptor), later, begin)


class LogWindow:
    """A file read through a sliding buffer, so that memory is bounded by the largest frame."""

    def __init__(self, descriptor: int) -> None:
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor
        self._start = 0
        self._buffer = memoryview(b"")

    def view(self, position: int, length: int) -> memoryview:
        """Return a part of the file.

        Raises:
            FrameDamaged: the file ends before.
        """
        at = position - self._start
        if at < 0 or at + length > len(self._buffer):
            if position + length > self.size:
                raise FrameDamaged(f"the file ends at {self.size}, inside a frame at {position}")
            content = os.pread(self._descriptor, max(length, WINDOW_BYTES), position)
            if len(content) < length:
                raise FrameDamaged(f"the file ends inside a frame at {position}")
            self._start, self._buffer, at = position, memoryview(content), 0
        return self._buffer[at : at + length]

    def is_zero_from(self, position: int) -> bool:
        """Return whether the file has only zeros from `position` to its end."""
        if position < self.size and self.view(position, 1)[0]:
            return False
        while position < self.size:
            part = self.view(position, min(self.size - position, WINDOW_BYTES))
            if bytes(part).strip(b"\0"):
                return False
            position += len(part)
        return True


def _read_group(window: LogWindow, before: Watermark) -> PlacedGroup:
    """Read the group that begins at the end of the previous one."""
    file, start, number = before
    group, crcs, position = CommitGroup(), [], start
    while True:
        kind = frames.frame_kind(window.view(position, HEADER_SIZE))
        if kind == COMMIT:
            break
        header = frames.decode_header(
            window.view(position, HEADER_SIZE), file=file, position=position
        )
        body = window.view(position + HEADER_SIZE, header.body_length)
        if crc32c(body) != header.body_crc:
            raise FrameDamaged(f"the body of the frame at {position} fails its CRC")
        take_frame(group, header, body)
        crcs.append(header.header_crc)
        position += HEADER_SIZE + header.body_length
    found = frames.decode_commit(window.view(position, COMMIT_SIZE), file=file, position=position)
    expected = CommitFrame(
        len(crcs), number + 1, found.synced_group, position - start, frames.sum_checksums(crcs)
    )
    if found != expected:
        raise FrameDamaged(f"the commit frame at {position} is {found}, expected {expected}")
    end = LogEnd(file, position + COMMIT_SIZE, number + 1)
    return PlacedGroup(group, start, end, len(crcs))


def take_frame(group: CommitGroup, header: frames.FrameHeader, body: memoryview) -> None:
    """Add the content of a frame to a group.

    Raises:
        FrameDamaged: the body is malformed.
    """
    if header.kind == frames.ENTRY:
        group.entries.append((header.ledger_id, header.entry_id, body))
    elif header.kind == frames.ROWS:
        group.rows += frames.decode_rows(body)
    elif header.kind == frames.DROP:
        group.drops += frames.decode_drops(body)
    else:
        group.moves = frames.decode_moves(body, group.entries)


def find_commits(window: LogWindow, file: int, position: int) -> Iterator[LaterCommit]:
    """Find every commit frame from a position on, whatever bytes are between them."""
    mark = frames.commit_mark(file)
    while position + COMMIT_SIZE <= window.size:
        length = min(window.size - position, WINDOW_BYTES)
        part = bytes(window.view(position, length))
        found = part.find(mark)
        if found < 0 or found + COMMIT_SIZE > length:
            # The frame may extend past the window: continue at the mark, or just before the edge.
            step = found if found > 0 else length - len(mark) + 1
            position += max(step, 1)
            continue
        position += found
        try:
            frame = frames.decode_commit(
                part[found : found + COMMIT_SIZE], file=file, position=position
            )
        except FrameDamaged:
            position += 1
            continue
        yield LaterCommit(file, position, frame.group, frame.synced_group)
        position += COMMIT_SIZE
