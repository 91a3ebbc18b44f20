"""The database of a cluster: one order of commits, and one session at a time that may make them.

Rule: each process has a session. One session owns the cluster; every other one waits. A commit has
the next number (`seq`) of its session's stream and takes effect only if the stream is open at the
number before, in the same statement that changes the rows. Fencing closes a stream for good, and
only then does another session become the owner, in a higher epoch. So whatever a fenced owner has
sent either is in what the next owner reads, or changes nothing.
Must not know: what entries and rows mean, object stores, event loops, SQL.

Every method blocks, and is called from threads. One thread at a time calls `commit` and `barrier`;
the other methods may run at the same time as these and each other. Their callers:

| part                                            | methods                                       |
|-------------------------------------------------|-----------------------------------------------|
| `kledger cluster init`, `kledger cluster status`| create; describe                              |
| a standby (`session_state` decides when)        | begin_session, observe, fence, acquire        |
| `CommitStream`, for the engine of an owner      | commit, barrier                               |
| the engine when it opens                        | rows, groups                                  |

An engine does not call `commit` and `barrier` itself, but `CommitStream.commit(change)`, which
counts, settles unknown outcomes by barriers and waits while the database is unavailable.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, NewType, Protocol

from kledger.ledger.engine.base import Row

SessionId = NewType("SessionId", int)
"""One life of a process; never given out twice."""

FORMAT: Final = 1
"""Of the tables, the objects and the rows of a cluster; others are refused."""
FORMAT_OF_NODES: Final = 2
"""The same of a cluster with several nodes, which releases before them must not open."""
ROWS_PER_PAGE: Final = 2_000
GROUPS_PER_PAGE: Final = 200
INLINE_BYTES_MAX: Final = 256 * 1024
"""Of one group; a larger one is an object."""


class SessionState(IntEnum):
    """What a session may do.

    WAITING: nothing; it becomes OPEN by `acquire`, or CLOSED when its broker begins another one.
    OPEN: commit, as the owner; it becomes CLOSED by `fence` or `end_session`.
    CLOSED: nothing, for good.
    """

    WAITING = 0
    OPEN = 1
    CLOSED = 2


class GroupId(NamedTuple):
    """Where a group stands in the order of all groups of a cluster: compare ids to order them.

    Attributes:
        epoch: of the owner that committed it.
        seq: the number of the commit in the stream of that owner; numbers have gaps.
    """

    epoch: int
    seq: int


BEFORE_ALL: Final = GroupId(0, 0)


class WalGroup(NamedTuple):
    """Where the entries of a group are: in an object, or inline in the database.

    Attributes:
        object_key: the object; None: `inline` has the bytes.
        size: bytes of the group, with its footer.
        footer_at: where its footer begins, from `at`.
        inline: what an object would have; None if there is an object.
        at: where the group begins in the object.
    """

    object_key: str | None
    size: int
    footer_at: int
    inline: bytes | None = None
    at: int = 0


class StoredGroup(NamedTuple):
    """A committed group."""

    group_id: GroupId
    wal: WalGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one commit changes, all or nothing. An empty one shows that the owner lives.

    Attributes:
        group: where the entries of the commit are; its id is (epoch, seq of the commit).
        rows: key and value, or None to delete the key; the last one of a key counts.
        forgotten: ids of groups that nothing refers to any more; unknown ones are ignored.
        relocated: groups whose entries are now somewhere else, such as inline bytes that were
            collected into an object; unknown ones are ignored.
    """

    group: WalGroup | None = None
    rows: Sequence[Row] = ()
    forgotten: Sequence[GroupId] = ()
    relocated: Sequence[StoredGroup] = ()


class SessionBroker(NamedTuple):
    """The process of a session, for status pages and for other brokers.

    Attributes:
        broker_id: Kafka's `node.id`.
        kafka: addresses for Kafka clients, as HOST:PORT; empty: none.
        native: the address for native clients; empty: none.
        admin: the address for administrators; empty: none.
    """

    broker_id: int
    kafka: str = ""
    native: str = ""
    admin: str = ""


class AcquiredEpoch(NamedTuple):
    """A session that has become the owner.

    Attributes:
        epoch: higher than that of every owner before; Kafka's leader epoch.
        seq: the number of the last commit of its stream: 0 at first.
    """

    epoch: int
    seq: int


class OwnerObservation(NamedTuple):
    """What an observer saw of the owner."""

    session: SessionId
    seq: int


class DescribedSession(NamedTuple):
    """A session as `kledger cluster status` shows it.

    Attributes:
        session: its id.
        state: see `SessionState`.
        broker: its process.
        epoch: in which it is or was the owner; 0: never.
        seq: the number of its last commit.
        silent_ms: how long ago it was last seen alive, by the database's clock. Only for display.
        group_count: how many groups it has committed that are not forgotten.
    """

    session: SessionId
    state: SessionState
    broker: SessionBroker
    epoch: int
    seq: int
    silent_ms: int
    group_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """A cluster.

    Attributes:
        cluster_id: as Kafka clients see it.
        incarnation: another one after each `create`; a part of the names of objects.
        store: the URL of the object store.
        format: see `FORMAT`.
        epoch: of the last owner; 0: there was none.
        owner: the session that owns the cluster; None: no session does.
        sessions: all that are not forgotten, by id.
        synchronous: names of the standby servers that a commit waits for; empty: a failover of the
            database may lose what was acknowledged.
        loses_on_crash: settings of the database by which its crash may lose commits; empty: none.
        nodes: how many have an owner each; 1: the cluster itself has one.
        peer_secret: what its servers know each other by; empty: there is one node.
    """

    cluster_id: str
    incarnation: str
    store: str
    format: int
    epoch: int
    owner: SessionId | None
    sessions: Sequence[DescribedSession]
    synchronous: str
    loses_on_crash: Sequence[str] = ()
    nodes: int = 1
    peer_secret: bytes = field(default=b"", repr=False)


class DatabaseError(Exception):
    """Base of all errors of a cluster's database.

    | error               | state                                | the caller                      |
    |---------------------|--------------------------------------|---------------------------------|
    | DatabaseUnavailable | nothing was changed by this call     | calls again                     |
    | UnknownOutcome      | the call changed all, or nothing yet | calls `barrier`; or calls again |
    | SessionFenced       | nothing; the session is closed       | ends; begins another session    |
    | CommitsLost         | answered commits are not there       | ends; an operator decides       |
    | DatabaseUnusable    | intact                               | refuses to start                |
    | NoCluster           | there is no cluster                  | refuses to start                |
    | ClusterExists       | there is one already                 | refuses to create               |
    """


class DatabaseUnavailable(DatabaseError):
    """The database could not be reached, or refused for a moment; nothing was changed."""


class UnknownOutcome(DatabaseError):
    """The connection died under a change, which may be done, be lost, or still be done later."""


class SessionFenced(DatabaseError):
    """The session is closed; nothing was changed."""


class CommitsLost(DatabaseError):
    """The stream is open at a lower number than that of an answered commit."""


class DatabaseUnusable(DatabaseError):
    """It is no database that a cluster can use: a wrong URL, login, version, setting or format."""


class NoCluster(DatabaseUnusable):
    """The database has no cluster; `kledger cluster init` makes one."""


class ClusterExists(DatabaseError):
    """The database has a cluster already."""


class ClusterDatabase(Protocol):
    """A database with the tables of one cluster, or of one node of a cluster.

    Every method may raise DatabaseUnavailable and DatabaseUnusable.
    """

    def create(self, *, cluster_id: str, store: str, nodes: int = 1) -> None:
        """Create the tables; of all nodes, if there are several.

        Args:
            cluster_id: as Kafka clients see it.
            store: the URL of the object store, without secrets.
            nodes: how many have an owner each, at most `NODES_MAX`; 1: the cluster itself has one.

        Raises:
            ClusterExists: nothing was changed.
            UnknownOutcome: `describe` says whether there is a cluster.
        """
        ...

    def describe(self) -> ClusterDescription:
        """Return the cluster, or the node, as it is. Raises NoCluster."""
        ...

    def begin_session(self, broker: SessionBroker) -> SessionId:
        """Make a session that waits; it closes every other waiting session of that broker.

        Closed sessions without groups are forgotten, also by `acquire`.

        Raises:
            NoCluster: there is none.
            UnknownOutcome: there may be a session that is never used; calling again closes it.
        """
        ...

    def acquire(self, session: SessionId) -> AcquiredEpoch | None:
        """Become the owner if there is none. May be repeated, also by the owner.

        Returns:
            None: another session owns the cluster.

        Raises:
            SessionFenced: the session is closed.
            UnknownOutcome: call again to find out.
        """
        ...

    def commit(self, session: SessionId, seq: int, change: Change) -> None:
        """Change everything in one atomic step, as number `seq` of the stream.

        Once begun it is never cancelled: it waits as long as its connection lives.

        Args:
            session: the owner.
            seq: one more than the number of the last commit or barrier.
            change: what to change.

        Raises:
            SessionFenced: the stream is closed.
            CommitsLost: the stream is open at a lower number than `seq` - 1.
            DatabaseUnavailable: the statement was not sent, or was refused.
            UnknownOutcome: only `barrier` settles it.
        """
        ...

    def barrier(self, session: SessionId, *, confirmed: int, seq: int) -> int:
        """Raise the stream to `seq` without a change, so that no statement below takes effect.

        Args:
            session: the owner.
            confirmed: the last number that was answered.
            seq: higher than that of every commit and barrier that was sent.

        Returns:
            The number of the last commit that took effect: no barrier counts.

        Raises:
            SessionFenced: the stream is closed.
            CommitsLost: the stream is open at a lower number than `confirmed`.
            UnknownOutcome: call again with a higher `seq`.
        """
        ...

    def observe(self) -> OwnerObservation | None:
        """Return the owner and the number of its stream; None: there is none. Raises NoCluster."""
        ...

    def fence(self, session: SessionId, seen_seq: int) -> bool:
        """Close the stream of the owner, if its number has not moved; then there is no owner.

        Returns:
            Whether this call closed it.

        Raises:
            UnknownOutcome: call `observe` to find out.
        """
        ...

    def end_session(self, session: SessionId) -> None:
        """Close a session of the caller's own; an owner first waits for all its commits.

        Raises:
            UnknownOutcome: the session may still be open, until it is fenced.
        """
        ...

    def rows(self, start: bytes, end: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        """Return pages of the rows with start <= key < end, in the order of keys.

        It is one state only if no commit runs meanwhile.
        """
        ...

    def groups(self, after: GroupId = BEFORE_ALL) -> Iterator[list[StoredGroup]]:
        """Return pages of the groups after an id, in order, with their inline bytes."""
        ...

    def close(self) -> None:
        """End all connections; a call under way fails. May be repeated."""
        ...


def no_node(node: int) -> NoCluster:
    """Return the error of a database without the tables of a node."""
    return NoCluster(
        f"the database has no node {node} of a cluster; `kledger cluster init --nodes` makes nodes"
    )


def session_closed(session: SessionId) -> SessionFenced:
    """Return the error of a session that is closed."""
    return SessionFenced(f"session {session} is closed: it ended, or another session has fenced it")


def wrong_seq(session: SessionId, found: int, *, expected: int) -> SessionFenced | CommitsLost:
    """Return the error of a stream that is open at another number than its owner has made."""
    if found < expected:
        return CommitsLost(
            f"the stream of session {session} is at commit {found}, expected {expected}: the "
            "database has lost commits that it had answered"
        )
    return SessionFenced(
        f"the stream of session {session} is at commit {found}, expected {expected}: another "
        "process uses the session"
    )


def session_waits(session: SessionId) -> SessionFenced:
    """Return the error of a session that has not become the owner."""
    return SessionFenced(f"session {session} waits: it is not the owner")
