"""Space plan: the live bytes of each log file, which files to remove, which to empty by moves.

Rule: a file can be removed when no ledger has an entry in it and the durable index is past it, so
that no recovery needs its rows. Other files are emptied, the emptiest first, only while too much of
the whole log is dead; so ledgers deleted in the order of their creation cost no moves.
Must not know: files, databases.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kledger.ledger.engine.index.ledger_sizes import LedgerSizes

FREE_BYTES_MIN = 32 * 1024 * 1024
"""Bytes that must stay free on the disk besides the copy of a file's live entries."""


class FileSpace(NamedTuple):
    """The size of a file, and how many of its bytes are live entries."""

    file: int
    size: int
    live_bytes: int

    @property
    def dead_bytes(self) -> int:
        """Bytes that are not live."""
        return self.size - self.live_bytes


def plan_rewrite(
    files: Sequence[FileSpace],
    *,
    current: int,
    dead_share_max: float,
    dead_bytes_min: int,
    free_bytes: int,
) -> int | None:
    """Return the file to empty next, None if no more of the log is dead than allowed.

    Args:
        files: all files of the log.
        current: the file being written to; if it is returned, it has to be sealed first.
        dead_share_max: the share of the log, and of a file that is not emptied, that may be dead.
        dead_bytes_min: bytes that may be dead in any case. The current file is returned only if it
            has at least half of that dead, or new files would be sealed again and again.
        free_bytes: free on the disk; the live entries of a file are stored twice for a while.

    If the whole log is above its share, so is at least one file. Files without live entries do not
    count, as they need only a checkpoint to be removed.
    """
    counted = [each for each in files if each.live_bytes or each.file == current]
    size = sum(each.size for each in counted)
    dead_bytes = sum(each.dead_bytes for each in counted)
    if dead_bytes <= max(dead_bytes_min, dead_share_max * size):
        return None
    worth = [
        each
        for each in counted
        if each.dead_bytes > dead_share_max * each.size
        and each.live_bytes + FREE_BYTES_MIN <= free_bytes
        and (each.file != current or 2 * each.dead_bytes >= dead_bytes_min)
    ]
    emptiest = min(worth, key=lambda each: (each.live_bytes / each.size, each.file), default=None)
    return None if emptiest is None else emptiest.file


class LogSpace:
    """Bytes of entry frames by file and ledger. Headers count; rows and commit frames do not."""

    __slots__ = ("_files",)

    def __init__(self) -> None:
        self._files: dict[int, LedgerSizes] = {}

    def ledgers_in(self, file: int) -> LedgerSizes:
        """Return bytes by ledger of a file. The append path adds to it in place."""
        ledgers = self._files.get(file)
        if ledgers is None:
            ledgers = self._files[file] = LedgerSizes()
        return ledgers

    def has(self, file: int, ledger_id: int) -> bool:
        """Return whether a ledger has entries in a file."""
        ledgers = self._files.get(file)
        return ledgers is not None and ledger_id in ledgers

    def move(self, ledger_id: int, size: int, *, source: int, target: int) -> bool:
        """Count an entry frame in another file; return whether it was the last one in `source`."""
        left, gained = self._files[source], self.ledgers_in(target)
        rest = left[ledger_id] - size
        assert rest >= 0, f"{-rest} bytes of ledger {ledger_id} were not in file {source}"
        if rest:
            left[ledger_id] = rest
        else:
            del left[ledger_id]
        gained.increase(ledger_id, size)
        return not left

    def drop(self, ledger_id: int) -> list[int]:
        """Forget a ledger; return the files that it had entries in."""
        return [
            file
            for file, ledgers in self._files.items()
            if ledgers.pop(ledger_id, None) is not None
        ]

    def live_bytes(self, file: int) -> int:
        """Return the bytes of the live entries in a file."""
        ledgers = self._files.get(file)
        return 0 if ledgers is None else ledgers.total

    def live_files(self) -> Iterator[int]:
        """Yield the files with live entries."""
        return (file for file, ledgers in self._files.items() if ledgers)

    def removable(self, files: Iterable[int], *, before: int) -> list[int]:
        """Return those of `files` that are below file `before` and have no live entries."""
        return [file for file in files if file < before and not self._files.get(file)]

    def forget(self, file: int) -> None:
        """Forget a removed file."""
        assert not self._files.get(file), f"file {file} still holds entries"
        self._files.pop(file, None)
