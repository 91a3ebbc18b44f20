"""Space plan: how many bytes of each log file are alive, and which files may go.

Rule: a file may go when no ledger has an entry in it and the durable index is past it, so that no
recovery needs its rows either.
Must not know: files, databases.
"""

from collections.abc import Iterable, Iterator


class LogSpace:
    """Bytes of entry frames per file and ledger. Headers count; rows and commit frames do not."""

    __slots__ = ("_files",)

    def __init__(self) -> None:
        self._files: dict[int, dict[int, int]] = {}

    def ledgers_in(self, file: int) -> dict[int, int]:
        """Return bytes per ledger of a file. The hot path adds to it in place."""
        return self._files.setdefault(file, {})

    def drop(self, ledger_id: int) -> list[int]:
        """Forget a ledger; returns the files that it had entries in."""
        return [
            file
            for file, ledgers in self._files.items()
            if ledgers.pop(ledger_id, None) is not None
        ]

    def live_bytes(self, file: int) -> int:
        """Return the bytes of a file that some ledger still needs."""
        return sum(self._files.get(file, {}).values())

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
