"""Frames: what a server answers, read from a blocking socket as it is on the wire.

Must not know: what is in an answer.
"""

from __future__ import annotations

import socket


def read_frame(connection: socket.socket) -> bytes:
    """Read one response without its size.

    Raises:
        ConnectionError: the other side hung up.
        TimeoutError: it took longer than the socket may wait.
    """
    return _read_exactly(connection, int.from_bytes(_read_exactly(connection, 4), "big"))


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < size:
        piece = connection.recv(size - len(pieces))
        if not piece:
            raise ConnectionError(f"the server hung up after {len(pieces)} of {size} bytes")
        pieces += piece
    return bytes(pieces)
