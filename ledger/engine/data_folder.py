"""Data folder: which folder is one of ours.

Rule: a folder that holds somebody else's files is refused before anything is written to it. Files
that a user puts beside ours later, and what file systems and tools leave, do no harm.
Must not know: what our files hold.

| name             | what                                                    |
|------------------|---------------------------------------------------------|
| lock             | who holds the folder                                    |
| log/NNNNNNNN.log | the entry log                                           |
| index/           | the index of it                                         |
| crash-image/     | left when a simulated power cut was itself interrupted  |
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from kledger.ledger.engine.errors import (
    FULL_ERRORS,
    FolderUnusable,
    StorageError,
    StorageWriteFailed,
)
from kledger.ledger.engine.log.log_files import number_in

LOCK = "lock"
LOG = "log"
INDEX = "index"
CRASH_IMAGE = "crash-image"
_FIXABLE_BY_USER = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EISDIR,
    errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE, errno.ENFILE,
}  # fmt: skip
_OURS = {LOCK, LOG, INDEX, CRASH_IMAGE, "lost+found"}


def check_not_foreign(folder: Path) -> None:
    """Check that a folder is ours, empty, or not there yet.

    Raises:
        FolderUnusable: it is something else.
        OSError: it cannot be looked at.
    """
    if not folder.exists():
        return
    if strange := foreign_name(os.listdir(folder), log_names(folder)):
        raise FolderUnusable(
            f"data folder {folder} holds something else, such as {strange}; "
            "a new data folder must be empty"
        )


def log_names(folder: Path) -> list[str]:
    """Return what stands where the log would be."""
    try:
        return os.listdir(folder / LOG)
    except (FileNotFoundError, NotADirectoryError):
        return []


def foreign_name(names: Sequence[str], log_names: Sequence[str]) -> str | None:
    """Return a name that no data folder of ours has; None when it is one, or could become one."""
    if any(number_in(name) is not None for name in log_names):
        return None
    strange = [name for name in names if name not in _OURS and not name.startswith(".")]
    strange += [f"{LOG}/{name}" for name in log_names]
    return min(strange, default=None)


def as_storage_error(folder: Path, error: OSError) -> StorageError:
    """Say why a folder cannot be used; three cases: it is full, not usable so, or broken."""
    where = "" if error.filename in (None, str(folder), folder) else f": {error.filename}"
    text = f"data folder {folder} cannot be used: {error.strerror or error}{where}"
    if error.errno in FULL_ERRORS:
        return StorageWriteFailed(text, full=True)
    return FolderUnusable(text) if error.errno in _FIXABLE_BY_USER else StorageError(text)
