"""Peer socket: the UNIX socket in a broker's folder on which it serves the other brokers.

Rule: a process that can open the socket is trusted, so the file has mode 0600 before the first
connection is accepted. A file that an earlier process has left is replaced; the lock of the
folder's store guarantees that no other process serves it.
Must not know: requests.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kledger.gateway.peers.peer_link import Connect, PeerConnection
from kledger.gateway.peers.peer_transport import MakePeerConnection
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
    """Return the bound socket of a folder, which does not listen yet.

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


def connect_to(folder: Path) -> Connect:
    """Return what connects to the peer that serves the socket of a folder."""

    async def connect(connection: PeerConnection) -> object:
        with peer_socket_path(folder) as path:
            loop = asyncio.get_running_loop()
            return await loop.create_unix_connection(lambda: connection, path)

    return connect


class UnixPeers:
    """Brokers of one machine, by the sockets in their folders; a `PeerTransport`."""

    def __init__(self, folder: Path, folder_of: Callable[[int], Path]) -> None:
        """Prepare.

        Args:
            folder: of this broker.
            folder_of: returns that of another one.
        """
        self._folder = folder
        self._folder_of = folder_of

    @property
    def address(self) -> None:
        """None: the others know the folder."""
        return None

    def connect_to(self, broker_id: int) -> Connect:
        """Return what connects to another broker."""
        return connect_to(self._folder_of(broker_id))

    async def listen(
        self, make_connection: MakePeerConnection, *, refused: Callable[[str], None], backlog: int
    ) -> asyncio.Server:
        """Accept the connections of other brokers; the mode of the file is the only check."""
        return await asyncio.get_running_loop().create_unix_server(
            lambda: make_connection("broker"), sock=bind_peer_socket(self._folder), backlog=backlog
        )
