"""A gate before each commit of another process: closed, it keeps a transaction open.

Rule: a program writes its records, asks for leave with one byte, and commits when one byte comes
back. While the gate is closed none comes, so a program that asked has a transaction open for as
long as the test needs, on a fast machine and on a slow one.
Must not know: which client the program uses.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Self

ASKING = LEAVE = b"\n"


class CommitGate:
    """The test's side: a listener that programs ask, one connection for each start of a program."""

    def __init__(self) -> None:
        """Listen on a port of loopback; the gate is open."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._changed = threading.Condition()
        self._is_open = True
        self._waiting = 0
        self._thread = threading.Thread(target=self._accept, name="commit gate", daemon=True)

    @property
    def address(self) -> str:
        """Where a program asks."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Give no leave inside the context."""
        self._set(is_open=False)
        try:
            yield
        finally:
            self._set(is_open=True)

    def wait_reached(self, within_s: float) -> None:
        """Wait until a program has a transaction open that it may not commit.

        A program that ends while it waits here counts: what it wrote is never committed.
        """
        with self._changed:
            assert not self._is_open, "an open gate stops no request"
            is_reached = self._changed.wait_for(lambda: self._waiting > 0, within_s)
        assert is_reached, f"no transaction came to its commit within {within_s:.0f} s"

    def _set(self, *, is_open: bool) -> None:
        with self._changed:
            self._is_open = is_open
            self._changed.notify_all()
            if is_open:  # so that none of these is taken for one that the next closing stopped
                self._changed.wait_for(lambda: self._waiting == 0)

    def _accept(self) -> None:
        while True:
            try:
                program, _ = self._listener.accept()
            except OSError:  # closed by __exit__
                return
            threading.Thread(target=self._answer, args=(program,), daemon=True).start()

    def _answer(self, program: socket.socket) -> None:
        """Answer one program until it ends."""
        with program, contextlib.suppress(ConnectionError):
            while program.recv(1):
                with self._changed:
                    self._waiting += 1
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._is_open)
                    self._waiting -= 1
                    self._changed.notify_all()
                program.sendall(LEAVE)

    def __enter__(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Let all requests pass, and drop their answers."""
        self._set(is_open=True)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


class GatedProgram:
    """The program's side: one connection for its whole life."""

    def __init__(self, address: str) -> None:
        """Connect to the gate of the test that started this program."""
        host, _, port = address.rpartition(":")
        self._gate = socket.create_connection((host, int(port)))

    def ask_leave(self) -> None:
        """Wait for leave to commit; call it with everything of the transaction written."""
        self._gate.sendall(ASKING)
        if not self._gate.recv(1):
            raise ConnectionError("the test that holds the gate has ended")
