"""Exchange: one connection on which requests made by hand are sent and answers are read.

Rule: blocking and without a client's own ideas, so that what is measured is the server.
Must not know: what is in a request.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.programs.raw_load import connect
from compat_tests.frames import read_frame

_BODY = 4
"""Where the body of an answer begins, behind the correlation id."""


class Exchange:
    """A connection; its opener closes it."""

    def __init__(self, connection: socket.socket) -> None:
        """Speak over `connection`."""
        self._connection = connection

    def send(self, request: bytes) -> None:
        """Send a framed request."""
        self._connection.sendall(request)

    def receive(self) -> bytes:
        """Wait for the next answer and give its body."""
        return read_frame(self._connection)[_BODY:]

    def ask(self, request: bytes) -> bytes:
        """Send a framed request and give the body of its answer."""
        self.send(request)
        return self.receive()


@contextmanager
def exchanges(bootstrap: str, count: int) -> Iterator[list[Exchange]]:
    """Open connections and close them behind the body."""
    with ExitStack() as exits:
        yield [Exchange(exits.enter_context(connect(bootstrap))) for _ in range(count)]
