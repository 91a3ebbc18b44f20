"""Private folders: what a server stores belongs to its user alone.

Rule: files and folders that a command makes from then on are 0600 and 0700. A data folder that is a
symbolic link, or that belongs to another user, is refused: that user could replace what is in it.
Must not know: what is stored.
"""

import os
import stat
from pathlib import Path
from typing import Final

OTHERS: Final = 0o077
"""Everything that the group and others could do."""


class UnsafeFolder(Exception):
    """A folder that a server must not use; the message is one line for the user."""


def keep_private(folder: str | Path) -> None:
    """Let this process make private files only; check and close a folder, if it exists.

    Raises:
        UnsafeFolder: it is a symbolic link, or belongs to another user.
    """
    os.umask(OTHERS)
    path = Path(folder)
    try:
        found = path.lstat()
    except OSError:
        return  # opening it fails with the reason
    if stat.S_ISLNK(found.st_mode):
        raise UnsafeFolder(f"{folder}: expected a folder, got a symbolic link")
    if not stat.S_ISDIR(found.st_mode):
        return
    if found.st_uid != os.geteuid():
        raise UnsafeFolder(
            f"{folder}: expected a folder of user {os.geteuid()}, got one of user {found.st_uid}"
        )
    if found.st_mode & OTHERS:
        path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
