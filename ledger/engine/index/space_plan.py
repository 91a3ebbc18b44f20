"""Space plan: how much of each log file is alive, which files may go, which are worth emptying.

Rule: a file may go when no ledger has an entry in it and the durable index is past it, so that no
recovery needs its rows either. Others are emptied, the emptiest first, only while the log takes
more than it should as a whole; so ledgers that go in the order in which they came cost no copy.
Must not know: files, databases.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kledger.ledger.engine.index.ledger_sizes import LedgerSizes

FREE_BYTES_MIN = 32 * 1024 * 1024
"""What must be left on the disk beside the copy of what is alive in a file."""


class FileSpace(NamedTuple):
    """What a file takes, and how much of that some ledger still needs."""

    file: int
    size: int
    live_bytes: int

    @property
    def dead_bytes(self) -> int:
        """Bytes that nobody needs."""
        return self.size - self.live_bytes


def plan_rewrite(
    files: Sequence[FileSpace],
    *,
    current: int,
    dead_share_max: float,
    dead_bytes_min: int,
    free_bytes: int,
) -> int | None:
    """Return the file to empty next, None when the log takes no more than it should.

    Args:
        files: all files of the log.
        current: the one being written to; when it is the answer, it has to be sealed first.
        dead_share_max: this share of the log may be dead, and this share of a file that stays.
        dead_bytes_min: so much may be dead in any case. The current file counts as soon as half
            of it could be gained there, or a new file would be sealed again and again.
        free_bytes: what is free on the disk; what is alive in a file needs room twice for a while.

    When the whole is above its share, so is at least one file. Files without anything alive do not
    count: they need no copy, only a checkpoint.
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
    """Bytes of entry frames per file and ledger. Headers count; rows and commit frames do not."""

    __slots__ = ("_files",)

    def __init__(self) -> None:
        self._files: dict[int, LedgerSizes] = {}

    def ledgers_in(self, file: int) -> LedgerSizes:
        """Return bytes per ledger of a file. The hot path adds to it in place."""
        ledgers = self._files.get(file)
        if ledgers is None:
            ledgers = self._files[file] = LedgerSizes()
        return ledgers

    def has(self, file: int, ledger_id: int) -> bool:
        """Tell whether a ledger has entries in a file."""
        ledgers = self._files.get(file)
        return ledgers is not None and ledger_id in ledgers

    def move(self, ledger_id: int, size: int, *, source: int, target: int) -> bool:
        """One entry frame stands elsewhere; tells whether that was the last one in `source`."""
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
        """Forget a ledger; returns the files that it had entries in."""
        return [
            file
            for file, ledgers in self._files.items()
            if ledgers.pop(ledger_id, None) is not None
        ]

    def live_bytes(self, file: int) -> int:
        """Return the bytes of a file that some ledger still needs."""
        ledgers = self._files.get(file)
        return 0 if ledgers is None else ledgers.total

    def live_files(self) -> Iterator[int]:
        """Yield the files in which some ledger has entries."""
        return (file for file, ledgers in self._files.items() if ledgers)

    def removable(self, files: Iterable[int], *, before: int) -> list[int]:
        """Return which of `files` are below file `before` and hold nothing alive."""
        return [file for file in files if file < before and not self._files.get(file)]

    def forget(self, file: int) -> None:
        """A file was removed."""
        assert not self._files.get(file), f"file {file} still holds entries"
        self._files.pop(file, None)
