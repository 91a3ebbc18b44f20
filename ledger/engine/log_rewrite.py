"""Log rewrite: finds the live entries of a log file that is mostly dead, chunk by chunk.

Rule: it changes nothing. A file is searched again until it has no live entries, so a chunk that was
not committed costs only another search. A file with a damaged entry is left alone, to be examined.
Must not know: how chunks are committed, time.
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
"""Rows of the index read in one call, so that other threads wait less than 1 ms."""
ENTRIES_MAX = 256
"""Entries in one chunk; the index looks up each of them again when the chunk is indexed."""
DEAD_SHARE_OF_FILE = 32
"""This fraction of a full file, 8 MiB, may be dead in any case."""

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
        self._ledgers: list[int] = []  # still to be searched, the next one last
        self._next_entry = 0
        self._has_found = False
        self._found = CommitGroup()
        self._found_bytes = 0
        self._skipped_files: set[int] = set()

    def next_moves(
        self, *, end: LogEnd, dead_share_max: float, bytes_max: int
    ) -> CommitGroup | None:
        """Search for the next chunk; see `StorageEngine.next_moves`.

        Args:
            end: of the log.
            dead_share_max: see `StorageEngine.next_moves`.
            bytes_max: see `StorageEngine.next_moves`.
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
        """Choose the next file; skip the previous one if its live entries could not be found."""
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
        """Measure the files, the last one without the zeros after the end."""
        spaces: list[FileSpace] = []
        for file in self._files.numbers():
            live_bytes = self._index.live_bytes(file)
            if file == end.file:
                spaces.append(FileSpace(file, end.position, live_bytes))
            elif live_bytes and file not in self._skipped_files:
                with suppress(FileNotFoundError):  # a checkpoint has removed it meanwhile
                    spaces.append(FileSpace(file, self._files.size(file), live_bytes))
        return spaces

    def _begin(self, file: int) -> None:
        self._file = file
        self._ledgers = self._index.ledgers_in(file)[::-1]
        self._next_entry = 0
        self._has_found = not self._ledgers  # all may be dead since the file was chosen
        self._start_chunk()

    def _start_chunk(self) -> None:
        self._found, self._found_bytes = CommitGroup(moves=[]), 0

    def _search(self, bytes_max: int) -> CommitGroup:
        """Read some rows, ledger after ledger; return a chunk when it is full, or the last one.

        Small chunks would fill the log with frames of groups instead of entries.
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
        """Add the next entries of a ledger to the chunk; return how many rows were read."""
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
        """End a file; two cases: an entry is damaged, or all are dead and it was removed."""
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
    """Return how many locations fit: as long as any of `bytes_max` is left."""
    for count, location in enumerate(locations):
        if bytes_max <= 0:
            return count
        bytes_max -= location.data_length
    return len(locations)
