"""Data folder: recognises a folder of this engine.

Rule: a folder with foreign files is refused before anything is written to it. Files that a user
adds later, and those that file systems and tools leave, do no harm.
Must not know: the content of files.

| name             | what                                                    |
|------------------|---------------------------------------------------------|
| lock             | locked by the engine that has the folder open           |
| log/NNNNNNNN.log | the entry log                                           |
| index/           | the index of it                                         |
| crash-image/     | left when a simulated power cut was itself interrupted  |

A folder that workers share has `workers.json` and is no data folder itself: theirs are in it.
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
WORKERS = "workers.json"
_FIXABLE_BY_USER = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EISDIR,
    errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE, errno.ENFILE,
}  # fmt: skip
_OURS = {LOCK, LOG, INDEX, CRASH_IMAGE, "lost+found"}


def check_not_foreign(folder: Path) -> None:
    """Check that a folder is a data folder, empty, or does not exist.

    Raises:
        FolderUnusable: it has foreign files.
        OSError: it cannot be listed.
    """
    if not folder.exists():
        return
    names = os.listdir(folder)
    if strange := foreign_name(names, log_names(folder)):
        if WORKERS in names:
            own = sorted(str(folder / each) for each in names if each.startswith("worker-"))
            raise FolderUnusable(
                f"data folder {folder} is that of a server with workers, which have their own: "
                + (", ".join(own) or "none yet")
            )
        raise FolderUnusable(
            f"data folder {folder} holds something else, such as {strange}; "
            "a new data folder must be empty"
        )


def log_names(folder: Path) -> list[str]:
    """Return the names in the log folder, none if there is no such folder."""
    try:
        return os.listdir(folder / LOG)
    except (FileNotFoundError, NotADirectoryError):
        return []


def foreign_name(names: Sequence[str], log_names: Sequence[str]) -> str | None:
    """Return a foreign name; None if the names are, or could become, those of a data folder."""
    if any(number_in(name) is not None for name in log_names):
        return None
    strange = [name for name in names if name not in _OURS and not name.startswith(".")]
    strange += [f"{LOG}/{name}" for name in log_names]
    return min(strange, default=None)


def as_storage_error(folder: Path, error: OSError) -> StorageError:
    """Translate an OSError; three cases: no space, a mistake of the user, other errors."""
    where = "" if error.filename in (None, str(folder), folder) else f": {error.filename}"
    text = f"data folder {folder} cannot be used: {error.strerror or error}{where}"
    if error.errno in FULL_ERRORS:
        return StorageWriteFailed(text, full=True)
    return FolderUnusable(text) if error.errno in _FIXABLE_BY_USER else StorageError(text)
