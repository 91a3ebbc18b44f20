"""Log rewrite: finds what is alive in a log file that is mostly dead, piece by piece.

Rule: it only looks. A file is done when nothing is alive in it; until then it is searched again, so
a piece that was never committed costs nothing but the search. A file with a damaged entry stays as
it is, for whoever examines it.
Must not know: how pieces are committed, what time it is.
"""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import TypeAlias

from kledger.ledger.engine.base import Buffer, CommitGroup, Move
from kledger.ledger.engine.errors import EntryCorrupt
from kledger.ledger.engine.index.index_keys import EntryLocation
from kledger.ledger.engine.index.log_index import LogIndex
from kledger.ledger.engine.index.read_plan import ReadRange, plan_reads
from kledger.ledger.engine.index.space_plan import FileSpace, plan_rewrite
from kledger.ledger.engine.log.entry_log import LogEnd
from kledger.ledger.engine.log.log_files import LogFiles

logger = logging.getLogger(__name__)

ROWS_MAX = 512
"""Rows of the index looked at in one call: what holds up other threads stays below 1 ms."""
ENTRIES_MAX = 256
"""Entries in one piece; the index looks each of them up again when it takes them in."""
DEAD_SHARE_OF_FILE = 32
"""What this part of a full file takes, 8 MiB, may be dead in any case."""

ReadEntries: TypeAlias = Callable[[int, ReadRange], list[Buffer]]


class LogRewrite:
    """The search through one log; `next_moves` may be called in any thread."""

    def __init__(
        self, files: LogFiles, index: LogIndex, read_entries: ReadEntries, *, file_bytes_max: int
    ) -> None:
        """Args: read_entries: reads entries of a ledger, and checks them."""
        self._files = files
        self._index = index
        self._read_entries = read_entries
        self._dead_bytes_min = file_bytes_max // DEAD_SHARE_OF_FILE
        self._lock = Lock()
        self._file: int | None = None
        self._ledgers: list[int] = []  # still to be looked through, the next one last
        self._next_entry = 0
        self._has_found = False
        self._found = CommitGroup()
        self._found_bytes = 0
        self._skipped_files: set[int] = set()

    def next_moves(
        self, *, end: LogEnd, dead_share_max: float, bytes_max: int
    ) -> CommitGroup | None:
        """Look for the next piece; see the seam.

        Args:
            end: of the log.
            dead_share_max: see the seam.
            bytes_max: see the seam.
        """
        with self._lock:
            if not self._ledgers:
                file = self._choose(end, dead_share_max)
                if file is None or file == end.file:
                    return None if file is None else CommitGroup(seals=True)
                self._begin(file)
            try:
                return self._search(bytes_max)
            except EntryCorrupt as error:
                self._unreadable(error)
                return CommitGroup()

    def _choose(self, end: LogEnd, dead_share_max: float) -> int | None:
        """Plan, having left a file alone in which nothing was found although something is alive."""
        if self._file is not None and not self._has_found and self._index.live_bytes(self._file):
            self._skip_file("the index has none of its entries")
        self._file = None
        state = os.statvfs(self._files.folder)
        return plan_rewrite(
            self._spaces(end),
            current=end.file,
            dead_share_max=dead_share_max,
            dead_bytes_min=self._dead_bytes_min,
            free_bytes=state.f_bavail * state.f_frsize,
        )

    def _spaces(self, end: LogEnd) -> list[FileSpace]:
        """Measure the files, the last one without the zeros behind the end."""
        spaces: list[FileSpace] = []
        for file in self._files.numbers():
            live_bytes = self._index.live_bytes(file)
            if file == end.file:
                spaces.append(FileSpace(file, end.position, live_bytes))
            elif live_bytes and file not in self._skipped_files:
                with suppress(FileNotFoundError):  # a checkpoint took it meanwhile
                    spaces.append(FileSpace(file, self._files.size(file), live_bytes))
        return spaces

    def _begin(self, file: int) -> None:
        self._file = file
        self._ledgers = self._index.ledgers_in(file)[::-1]
        self._next_entry = 0
        self._has_found = not self._ledgers  # it may have died since it was chosen
        self._start_chunk()

    def _start_chunk(self) -> None:
        self._found, self._found_bytes = CommitGroup(moves=[]), 0

    def _search(self, bytes_max: int) -> CommitGroup:
        """Look at some rows, ledger after ledger; return a piece when it is full, or the last one.

        Small pieces would fill the log with what is around them instead of entries.
        """
        rows_left = ROWS_MAX
        while self._ledgers and rows_left > 0:
            rows_left -= self._take_from(self._ledgers[-1], rows_left, bytes_max)
            if self._found_bytes >= bytes_max or len(self._found.entries) >= ENTRIES_MAX:
                break
        else:
            if self._ledgers:
                return CommitGroup()
        chunk = self._found
        self._start_chunk()
        return chunk

    def _take_from(self, ledger_id: int, rows_max: int, bytes_max: int) -> int:
        """Take the next entries of a ledger into the piece; returns how many rows it looked at."""
        assert self._file is not None
        group, rows_max = self._found, min(rows_max, ENTRIES_MAX - len(self._found.entries))
        locations, go_on = self._index.locations_in(
            self._file, ledger_id, self._next_entry, rows_max=rows_max
        )
        taken = _fitting(locations, bytes_max - self._found_bytes)
        moves = [Move(ledger_id, each.entry_id, each.file, each.position) for each in locations]
        for move, data in zip(moves, self._read(ledger_id, locations[:taken]), strict=False):
            group.entries.append((ledger_id, move.entry_id, data))
            self._found_bytes += len(data)
        group.moves = [*group.moves, *moves[:taken]]
        self._has_found = self._has_found or bool(locations)
        if taken < len(locations):
            self._next_entry = locations[taken].entry_id
        else:
            self._next_entry = go_on or 0
            if go_on is None:
                self._ledgers.pop()
        return rows_max

    def _read(self, ledger_id: int, locations: Sequence[EntryLocation]) -> list[Buffer]:
        buffers: list[Buffer] = []
        for read_range in plan_reads(locations):
            buffers += self._read_entries(ledger_id, read_range)
        return buffers

    def _unreadable(self, error: EntryCorrupt) -> None:
        """Two cases: an entry is damaged, or all that was alive went, and the file with it."""
        assert self._file is not None
        if self._index.live_bytes(self._file):
            self._skip_file(str(error))
        self._file, self._ledgers = None, []

    def _skip_file(self, reason: str) -> None:
        assert self._file is not None
        path = self._files.path(self._file)
        logger.warning("log file %s keeps its dead space: %s", path, reason)
        self._skipped_files.add(self._file)
        self._file, self._ledgers = None, []


def _fitting(locations: Sequence[EntryLocation], bytes_max: int) -> int:
    """Return how many places to take: while there is room, and at least one."""
    for count, location in enumerate(locations):
        if bytes_max <= 0:
            return count
        bytes_max -= location.data_length
    return len(locations)
