"""A proxy between a client and a PostgreSQL: it cuts connections, and delivers late what it took.

A step is a piece of bytes that one side has sent. Each connection has a thread for each direction.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

Direction = Literal["to server", "to client"]
PIECE_BYTES = 1 << 16


class ProxiedConnection:
    """One connection through the proxy."""

    def __init__(self, proxy: "TcpProxy", client: socket.socket, server: socket.socket) -> None:
        self.held: list[bytes] = []
        """What the client has sent while requests are held."""
        self._proxy = proxy
        self._client = client
        self._server = server
        for direction, source, sink in (
            ("to server", client, server),
            ("to client", server, client),
        ):
            threading.Thread(target=self._copy, args=(direction, source, sink), daemon=True).start()

    def cut_client(self) -> None:
        """End the connection for the client alone."""
        _cut(self._client)

    def cut(self) -> None:
        """End the connection for both."""
        _cut(self._client)
        _cut(self._server)

    def deliver_held(self) -> None:
        """Let arrive what was held, and wait until the server has answered or ended."""
        self._server.sendall(b"".join(self.held))
        self._server.shutdown(socket.SHUT_WR)
        self._proxy.wait_for(lambda: self._is_server_done)

    _is_server_done = False

    def _copy(self, direction: Direction, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                if direction == "to server" and self._proxy.is_holding:
                    self.held.append(piece)
                    self._proxy.notify()
                    continue
                if self._proxy.step_cuts(direction, self):
                    return
                if direction == "to client" and self.held:
                    continue  # the client has gone
                sink.sendall(piece)
        if direction == "to server":
            if not self.held:
                _cut(self._server)
        else:
            self._is_server_done = True
            self._proxy.notify()
            _cut(self._client)


class TcpProxy:
    """Listens on a port of its own; `close` ends it."""

    def __init__(self, server_socket: Path) -> None:
        """Args: server_socket: the Unix socket of the server."""
        self.is_holding = False
        """Whether what clients send is kept, see `deliver_held`."""
        self.connections: list[ProxiedConnection] = []
        self.step_count = 0
        self._cut_at: int | None = None
        self._is_delivered = False
        self._changed = threading.Condition()
        self._server_socket = str(server_socket)
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        port: int = self._listener.getsockname()[1]
        return port

    def cut_at(self, step: int, *, is_delivered: bool) -> None:
        """Cut the connection at that step from now, before or after it is delivered."""
        self.step_count, self._cut_at, self._is_delivered = 0, step, is_delivered

    def step_cuts(self, direction: Direction, connection: ProxiedConnection) -> bool:
        """Count a step; return whether its connection is cut."""
        with self._changed:
            self.step_count += 1
            is_cut = self._cut_at == self.step_count
        if is_cut and direction == "to server" and self._is_delivered:
            # The server gets the statement, and the client no answer.
            connection.cut_client()
            return False
        if is_cut:
            connection.cut()
        return is_cut

    def wait_for_held(self) -> ProxiedConnection:
        """Wait until a client has sent something while requests are held."""
        self.wait_for(lambda: any(each.held for each in self.connections))
        return next(each for each in self.connections if each.held)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so that only the proxy changes."""
        with self._changed:
            assert self._changed.wait_for(condition, 60)

    def notify(self) -> None:
        """Let those that wait look again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End all connections."""
        _cut(self._listener)
        for each in self.connections:
            each.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server_socket)
                self.connections.append(ProxiedConnection(self, client, server))


def _cut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
