"""A port of loopback that is reserved for one server, also while it is not running.

Rule: the port stays bound here, without listening, from the moment it is chosen. Servers set
SO_REUSEADDR, so ours may listen beside that; the kernel gives a bound port to no process that
leaves the choice to it. A port that was only seen to be free may belong to another server by the
time that ours wants it: seconds later for a virtual machine, or between a kill and the next start.
Then the probe and the clients connect to that other server, until it ends.
"""

from __future__ import annotations

import socket
from typing import Self


class ReservedPort:
    """A bound socket that never listens."""

    def __init__(self, host: str = "127.0.0.1", number: int = 0) -> None:
        """Take a port; 0 is any free one. Raises OSError if it is in use, or reserved."""
        self._socket = socket.socket()
        try:
            self._socket.bind((host, number))
        except OSError:
            self._socket.close()
            raise
        # Not before: two that have the option could reserve one port.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    @property
    def number(self) -> int:
        """The port."""
        found: int = self._socket.getsockname()[1]
        return found

    def close(self) -> None:
        """Let anybody have it."""
        self._socket.close()

    def __enter__(self) -> Self:
        """Keep it inside the context."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Let it go."""
        self.close()


def reserve_run(host: str, count: int) -> list[ReservedPort]:
    """Take ports that follow each other; return them in their order."""
    while True:
        taken = [ReservedPort(host)]
        try:
            while len(taken) < count:
                taken.append(ReservedPort(host, taken[-1].number + 1))
        except (OSError, OverflowError):  # the next one is in use, or there is none
            for each in taken:
                each.close()
        else:
            return taken
