"""The nodes of a cluster in its database: the owner of each, and the servers.

Rule: a node has the tables of a cluster with one owner, see `database`; they alone decide which
session owns it and what the owner may do. The tables here inform servers about each other, so that
they agree on a division of the nodes: a server that acts on old information claims or hands over a
node too early or too late, and causes nothing worse.
Must not know: which server should own which node, SQL.

Every method blocks, and is called from threads, one at a time.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from kledger.ledger.cluster.database import OwnerObservation, SessionBroker

NODES_MAX: Final = 64
"""As many as a coordinator has shards: a node beyond would coordinate nothing."""
PEER_SECRET_BYTES: Final = 32
SERVER_LIVE_MS: Final = 3_000
"""A server that was not seen for so long counts as dead; it announces itself every second.

That must be before its nodes are fenced, or they would be given to it again.
"""
SERVER_FORGOTTEN_MS: Final = 24 * 3_600_000
"""After that the row of a dead server is deleted."""


class DescribedNode(NamedTuple):
    """A node, as it was seen.

    Attributes:
        node: from 1.
        epoch: of its last owner; 0: there was none.
        owner: the session that owns it, and the number of its last commit; None: no session does.
        server_id: the server of that session; None: no session owns it.
        silent_ms: how long ago the owner committed, by the database's clock; only for display.
        preferred: the server that owns it while that lives; None: any.
    """

    node: int
    epoch: int
    owner: OwnerObservation | None
    server_id: int | None
    silent_ms: int
    preferred: int | None = None


class DescribedServer(NamedTuple):
    """A server, as it was seen.

    Attributes:
        server: its id, the `node.id` of its settings, and its addresses.
        is_draining: it hands over all its nodes, as it is about to end.
        silent_ms: how long ago it has announced itself, by the database's clock.
    """

    server: SessionBroker
    is_draining: bool
    silent_ms: int

    @property
    def is_live(self) -> bool:
        """Whether it may be given nodes, unless it is draining."""
        return self.silent_ms < SERVER_LIVE_MS


class NodesObservation(NamedTuple):
    """All nodes and all servers, each in the order of their ids."""

    nodes: Sequence[DescribedNode]
    servers: Sequence[DescribedServer]


class NodesDatabase(Protocol):
    """What all nodes of a cluster have in common in its database.

    Every method may raise DatabaseUnavailable, DatabaseUnusable and NoCluster.
    """

    def observe_nodes(self) -> NodesObservation:
        """Return all nodes with their owners, and all servers."""
        ...

    def announce_server(
        self, server: SessionBroker, incarnation: UUID, *, is_draining: bool
    ) -> bool:
        """Let all servers see that a server lives; rows of long dead ones are deleted.

        Args:
            server: its id and its addresses.
            incarnation: of its process; a second process with its id has another one.
            is_draining: whether it is about to end.

        Returns:
            Whether they see it; False: a live process with another incarnation has this id.

        Raises:
            UnknownOutcome: they may see it; call again to find out.
        """
        ...

    def end_server(self, server_id: int, incarnation: UUID) -> None:
        """Let all servers see that a server has ended.

        Raises:
            UnknownOutcome: it may be seen until it counts as dead.
        """
        ...

    def prefer_server(self, node: int, server_id: int | None) -> None:
        """Let one server own a node, while it lives and is not draining; None: any.

        Args:
            node: which there is.
            server_id: of a server, which need not live.

        Raises:
            UnknownOutcome: servers may see it; calling again tells.
        """
        ...

    def close(self) -> None:
        """End the connection; a call under way fails. May be repeated."""
        ...
