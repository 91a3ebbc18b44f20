"""ReservedPorts: keeps the ports of workers bound, also while a worker does not listen.

Rule: sockets here are bound and never listen, so no connection arrives at them. With SO_REUSEPORT,
sockets of one user may share a port: here those of the parent and of its workers. A socket without
it cannot be bound, so another server cannot take the port of a worker that is being restarted, and
the kernel does not choose one of these ports for port 0.
Must not know: workers, listeners.
"""

import errno
import socket
from contextlib import ExitStack

from kledger.setting_values import joined_address
from kledger.workers.worker_identity import Address
from kledger.workers.worker_plan import WorkersMistake


class ReservedPorts:
    """The ports of one parent."""

    def __init__(self) -> None:
        self._sockets = ExitStack()

    def reserve(self, name: str, address: Address) -> Address:
        """Bind a port on every address of a host.

        Args:
            name: of the listener, for the error.
            address: host and port; port 0 is any free one.

        Returns:
            The host, and the port that is bound.

        Raises:
            WorkersMistake: the port is in use, or the host has no such address.
        """
        host, port = address
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, socket_address in dict.fromkeys(found):
                if port:
                    _check_free(family, (socket_address[0], port))
                bound = self._sockets.enter_context(_bound(family, (socket_address[0], port)))
                port = bound.getsockname()[1]
        except OSError as error:
            raise WorkersMistake(
                f"{name} {joined_address(*address)}: {error.strerror or error}"
            ) from None
        return host, port

    def close(self) -> None:
        """Release all ports."""
        self._sockets.close()


def _check_free(family: int, address: tuple[object, int]) -> None:
    """Raise OSError if another process listens there or has reserved the port."""
    with _socket(family) as probe:
        # Connections that a server of before has closed are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def _bound(family: int, address: tuple[object, int]) -> socket.socket:
    reserved = _socket(family)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        try:
            reserved.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            # `_check_free` has found no listener: these are closed connections of a server without
            # workers. Until the first worker listens, others that set the option can bind, too.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(address)
    except BaseException:
        reserved.close()
        raise
    return reserved


def _socket(family: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        # As the listeners of asyncio: the port of version 4 is another one.
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made
