"""Two brokers without disks, of which one owns the cluster, and the addresses of clients.

Rule: a broker that has ended is started again, as a standby, under the same addresses. Clients that
go back to their bootstrap servers have the addresses of both; the others that of a load balancer,
which a listener of its own advertises.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import ExitStack, suppress
from enum import Enum
from typing import Self

from compat_tests.servers import ClusterStores
from compat_tests.servers.ports import ReservedPort
from kledger.process import ServerProcess, arguments_for

HOST = "127.0.0.1"
PIECE_BYTES = 1 << 16


class OwnerEnd(Enum):
    """How an owner loses its cluster."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    """It goes on when another broker owns the cluster."""


class LoadBalancer:
    """Leads the connections to one address to the broker that was named last."""

    def __init__(self) -> None:
        """Listen on a port of loopback."""
        self._target: tuple[str, int] | None = None
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((HOST, 0))
        threading.Thread(target=self._accept, name="load balancer", daemon=True).start()

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"{HOST}:{self._listener.getsockname()[1]}"

    def lead_to(self, port: int) -> None:
        """Lead what connects from now on to this port, and end what is connected."""
        with self._lock:
            self._target = HOST, port
            ends = [*self._ends]
        for each in ends:
            _end(each)

    def close(self) -> None:
        """End everything."""
        _end(self._listener)
        for each in [*self._ends]:
            _end(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._lead, args=(client,), daemon=True).start()

    def _lead(self, client: socket.socket) -> None:
        """Copy both ways until one side ends."""
        with client, suppress(OSError):
            with self._lock:
                target = self._target
            if target is None:
                return
            with socket.create_connection(target) as broker:
                with self._lock:
                    if target != self._target:
                        return
                    self._ends |= {client, broker}
                back = threading.Thread(target=_copy, args=(broker, client), daemon=True)
                back.start()
                _copy(client, broker)
                back.join()
                with self._lock:
                    self._ends -= {client, broker}


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(PIECE_BYTES):
            sink.sendall(piece)
    _end(source)
    _end(sink)


def _end(connection: socket.socket) -> None:
    """Wake up a task that reads from it, or accepts; its owner closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class BrokerPair:
    """The brokers; a context manager that ends them.

    Attributes:
        balancer: leads to the owner, once it is ready.
    """

    def __init__(self, stores: ClusterStores, settings: dict[str, object]) -> None:
        """Prepare brokers of a cluster that was made; nothing is started yet."""
        self._cluster = stores.arguments()
        self._settings = settings
        self._stack = ExitStack()
        self._ports = [
            tuple(self._stack.enter_context(ReservedPort(HOST)).number for _ in range(2))
            for _ in range(2)
        ]
        self._owner = 0
        self._brokers: list[ServerProcess] = []
        self.balancer = LoadBalancer()

    @property
    def bootstrap(self) -> str:
        """The addresses of both brokers."""
        return ",".join(f"{HOST}:{direct}" for direct, _ in self._ports)

    def log_text(self) -> str:
        """Return what both have logged since their last start."""
        return "\n".join(each.log_text() for each in self._brokers)

    def __enter__(self) -> Self:
        """Start an owner and a standby."""
        self._stack.callback(self.balancer.close)
        self._stack.callback(self._stop)
        self._brokers.append(self._begun(0).wait_until_ready())
        self._lead()
        self._brokers.append(self._begun(1).wait_until_standby())
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop both."""
        self._stack.close()

    def end_owner(self, how: OwnerEnd) -> None:
        """End the ownership of the owner; return when the standby has taken over."""
        before = self._brokers[self._owner]
        match how:
            case OwnerEnd.KILL:
                before.kill()
            case OwnerEnd.STOP:
                assert 0 == before.stop(), before.log_text()
            case OwnerEnd.PAUSE:
                os.kill(before.pid, signal.SIGSTOP)
        self._owner = 1 - self._owner
        self._brokers[self._owner].wait_until_ready()
        self._lead()

    def bring_back(self, how: OwnerEnd) -> None:
        """Let the broker that was the owner be the standby."""
        index = 1 - self._owner
        if how is OwnerEnd.PAUSE:
            os.kill(self._brokers[index].pid, signal.SIGCONT)
        else:
            self._brokers[index] = self._begun(index)
        self._brokers[index].wait_until_standby()

    def _lead(self) -> None:
        self.balancer.lead_to(self._ports[self._owner][1])

    def _begun(self, index: int) -> ServerProcess:
        """Start a broker."""
        direct, balanced = (f"{HOST}:{port}" for port in self._ports[index])
        settings = self._settings | {
            "node.id": str(index + 1),
            "listeners": f"PLAINTEXT://{direct},BALANCED://{balanced}",
            "advertised.listeners": f"PLAINTEXT://{direct},BALANCED://{self.balancer.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BALANCED:PLAINTEXT",
        }
        return ServerProcess(*self._cluster, *arguments_for(settings), kafka=direct).begin()

    def _stop(self) -> None:
        for each in self._brokers:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGCONT)
            each.stop()
