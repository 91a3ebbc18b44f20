"""Sockets that are files in a folder, however long the folder's path is.

Rule: the path of a UNIX socket may have 107 bytes only, so a socket is named by the number of the
open folder.
Must not know: what is sent.
"""

import os
from pathlib import Path


def open_socket_folder(folder: Path) -> int:
    """Open a folder; return the number that `socket_path` takes, to be closed with `os.close`.

    Raises:
        OSError: there is no such folder.
    """
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def socket_path(opened: int, name: str) -> str:
    """Return a short path to a file in a folder, valid while it is open in this process."""
    return f"/proc/self/fd/{opened}/{name}"
