"""Peer socket: the UNIX socket in a broker's folder on which it serves the other brokers.

Rule: who can open the socket is trusted, so only its user can: the file has mode 0600 before the
first connection is accepted. A file that an earlier process has left is replaced; the lock of the
folder's store sees to it that no other process serves it.
Must not know: requests.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kledger.runtime.socket_folder import open_socket_folder, socket_path

SOCKET_NAME: Final = "peer.sock"
_MODE: Final = 0o600


@contextmanager
def peer_socket_path(folder: Path) -> Iterator[str]:
    """Have a path to the socket of a folder.

    Raises:
        OSError: there is no such folder.
    """
    opened = open_socket_folder(folder)
    try:
        yield socket_path(opened, SOCKET_NAME)
    finally:
        os.close(opened)


def bind_peer_socket(folder: Path) -> socket.socket:
    """Return the socket of a folder, which nobody can connect to before it listens.

    Raises:
        OSError: it cannot be made.
    """
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with peer_socket_path(folder) as path:
            with suppress(FileNotFoundError):
                os.unlink(path)
            bound.bind(path)
            os.chmod(path, _MODE)
    except BaseException:
        bound.close()
        raise
    return bound
