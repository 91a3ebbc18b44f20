"""Folder lock: one engine per data folder, in all processes of the machine.

Rule: the lock belongs to an open file, so it ends with the process in any case, and a second
attempt fails in the same process as in another one.
Must not know: what is in the folder.
"""

import fcntl
import os
from pathlib import Path

from kledger.ledger.engine import data_folder
from kledger.ledger.engine.errors import FolderInUse


class FolderLock:
    """Holds a folder from construction to `release`."""

    def __init__(self, folder: Path, *, is_read_only: bool = False) -> None:
        """Create the folder if needed and lock it.

        Args:
            folder: whose lock to take.
            is_read_only: create nothing; a folder without a lock file counts as not in use.

        Raises:
            FolderInUse: another lock is held.
            FolderUnusable: it cannot be created or written, or has foreign files.
            StorageWriteFailed: there is no space for it.
        """
        try:
            data_folder.check_not_foreign(folder)
            self._descriptor = _open_existing(folder) if is_read_only else _open_or_make(folder)
        except OSError as error:
            raise data_folder.as_storage_error(folder, error) from error
        if self._descriptor < 0:
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise FolderInUse(f"data folder {folder} is in use") from error

    def release(self) -> None:
        """Release the lock. May be repeated."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _open_or_make(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / data_folder.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _open_existing(folder: Path) -> int:
    try:
        return os.open(folder / data_folder.LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
