"""Log walk: reads every frame of a log file from its first byte on, past any damage.

Rule: each damage is reported once, at the damaged frame. After a damaged header the walk continues
at the next commit frame, the only kind that can be distinguished from data.
Must not know: the consequences of damage, the index.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

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
from kledger.ledger.engine.log.log_scan import LogWindow, find_commits, take_frame

TakeGroup: TypeAlias = Callable[[PlacedGroup], None]
"""Called with the readable frames of a group that has a commit frame, up to the first damaged
header; entries with damaged data are included."""


class FrameFault(NamedTuple):
    """A damaged frame; unknown ids are -1."""

    position: int
    reason: str
    ledger_id: int = -1
    entry_id: int = -1


@dataclass(slots=True)
class WalkedFile:
    """The result of a walk.

    Attributes:
        group_count: whole groups.
        entry_count: whole entry frames.
        last_group: number of the last group, None if it is not known.
        faults: in order of their positions.
        entry_bytes: bytes of entry frames by ledger, as the space rows of the index count them.
        torn_at: start of a group without a commit frame at the end of the file, None if none is.
    """

    group_count: int = 0
    entry_count: int = 0
    last_group: int | None = None
    faults: list[FrameFault] = field(default_factory=list)
    entry_bytes: dict[int, int] = field(default_factory=dict)
    torn_at: int | None = None


@dataclass(slots=True)
class _Group:
    """The group being walked."""

    start: int
    crcs: list[int] = field(default_factory=list)
    is_damaged: bool = False
    content: CommitGroup = field(default_factory=CommitGroup)


def walk_file(
    descriptor: int,
    file: int,
    group_before: int | None,
    *,
    start: int = 0,
    take: TakeGroup | None = None,
) -> WalkedFile:
    """Check every frame of a file.

    Args:
        descriptor: the file.
        file: its number.
        group_before: the last group before `start`, None if it is not known.
        start: start of a group.
        take: called with the content of each group.
    """
    return _Walk(LogWindow(descriptor), file, group_before, take).run(start)


class _Walk:
    def __init__(
        self, window: LogWindow, file: int, group_before: int | None, take: TakeGroup | None
    ) -> None:
        self._window = window
        self._file = file
        self._take = take
        self._found = WalkedFile()
        self._found.last_group = group_before

    def run(self, position: int) -> WalkedFile:
        while not self._window.is_zero_from(position):
            position = self._group(position)
        return self._found

    def _group(self, start: int) -> int:
        """Walk through one group; return the start of the next one."""
        group, position = _Group(start), start
        while True:
            try:
                if frames.frame_kind(self._window.view(position, HEADER_SIZE)) == COMMIT:
                    return self._commit(group, position)
                position = self._frame(group, position)
            except FrameDamaged as damaged:
                self._found.faults.append(FrameFault(position, str(damaged)))
                return self._next_after_damage(group, position)

    def _frame(self, group: _Group, position: int) -> int:
        """Check a frame of any kind but commit; return its end."""
        header = frames.decode_header(
            self._window.view(position, HEADER_SIZE), file=self._file, position=position
        )
        ids = (header.ledger_id, header.entry_id) if header.kind == frames.ENTRY else (-1, -1)
        end = position + HEADER_SIZE + header.body_length
        if end > self._window.size:
            raise FrameDamaged(f"the file ends at {self._window.size}, inside the frame")
        body = self._window.view(position + HEADER_SIZE, header.body_length)
        group.crcs.append(header.header_crc)
        is_whole = crc32c(body) == header.body_crc
        if not is_whole:
            group.is_damaged = True
            self._found.faults.append(FrameFault(position, "the body fails its CRC", *ids))
        elif header.kind == frames.ENTRY:
            self._found.entry_count += 1
        if self._take is not None and (is_whole or header.kind == frames.ENTRY):
            take_frame(group.content, header, body)
        if header.kind == frames.ENTRY:
            sizes = self._found.entry_bytes
            sizes[ids[0]] = sizes.get(ids[0], 0) + HEADER_SIZE + header.body_length
        return end

    def _commit(self, group: _Group, position: int) -> int:
        """Check the frame that closes a group; return its end."""
        found = frames.decode_commit(
            self._window.view(position, COMMIT_SIZE), file=self._file, position=position
        )
        last = self._found.last_group
        number = found.group if last is None else last + 1
        crcs, size = group.crcs, position - group.start
        expected = CommitFrame(
            len(crcs), number, found.synced_group, size, frames.sum_checksums(crcs)
        )
        self._found.last_group = found.group
        if found != expected:
            reason = f"the commit frame is {found}, expected {expected}"
            self._found.faults.append(FrameFault(position, reason))
        elif not group.is_damaged:
            self._found.group_count += 1
        self._report_group(group, position, found.group)
        return position + COMMIT_SIZE

    def _next_after_damage(self, group: _Group, position: int) -> int:
        """Return the start of the next group after a damaged header, the end if there is none."""
        self._found.last_group = None
        for commit in find_commits(self._window, self._file, position + 1):
            self._report_group(group, commit.position, commit.group)
            return commit.position + COMMIT_SIZE
        self._found.torn_at = group.start
        return self._window.size

    def _report_group(self, group: _Group, commit_at: int, number: int) -> None:
        if self._take is not None:
            end = LogEnd(self._file, commit_at + COMMIT_SIZE, number)
            self._take(PlacedGroup(group.content, group.start, end, len(group.crcs)))
