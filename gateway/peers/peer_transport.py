"""Peer transport: how the brokers of a cluster reach each other.

Rule: a connection reaches the server only after both ends are known to be brokers of the cluster;
any other client is refused before a request is read.
Must not know: requests.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import asyncio

    from kledger.gateway.peers.peer_link import Connect

MakePeerConnection: TypeAlias = "Callable[[str], asyncio.BufferedProtocol]"
"""Makes the protocol of a connection of another broker, from what log lines call it."""


class PeerServer(Protocol):
    """What accepts the connections of other brokers."""

    def close(self) -> None:
        """Accept no more, and close those that are no broker's yet."""
        ...


class PeerTransport(Protocol):
    """How one broker reaches the others, and they it."""

    def connect_to(self, broker_id: int) -> "Connect":
        """Return what connects to another broker."""
        ...

    async def listen(
        self, make_connection: MakePeerConnection, *, refused: Callable[[str], None], backlog: int
    ) -> PeerServer:
        """Accept the connections of other brokers.

        Args:
            make_connection: serves one.
            refused: called with the reason when a connection was refused.
            backlog: how many may wait to be accepted.

        Raises:
            OSError: it cannot listen.
        """
        ...

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port that the others connect to; None: they find it in another way."""
        ...
