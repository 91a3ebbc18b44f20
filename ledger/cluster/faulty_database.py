"""FaultyDatabase: connection faults between one process and its database.

Rule: a statement whose connection died is lost, or executed, or executed later; the caller cannot
tell which. A late statement runs when the test says so, and its outcome is dropped.
Must not know: why a fault is chosen.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum, auto
from typing import TypeAlias, TypeVar

from kledger.ledger.cluster.database import (
    BEFORE_ALL,
    AcquiredEpoch,
    Change,
    ClusterDatabase,
    ClusterDescription,
    DatabaseError,
    DatabaseUnavailable,
    GroupId,
    OwnerObservation,
    SessionBroker,
    SessionId,
    StoredGroup,
    UnknownOutcome,
)

Result = TypeVar("Result")


class DatabaseFault(Enum):
    """What happens to one call.

    NONE: nothing.
    AWAY: it is not sent, or refused for a moment.
    LOST: its connection dies; it is never done. A call that only reads fails alike.
    ANSWER_LOST: it is done, and its connection dies before the answer.
    LATE: its connection dies, and it is done later.
    """

    NONE = auto()
    AWAY = auto()
    LOST = auto()
    ANSWER_LOST = auto()
    LATE = auto()


ChooseFault: TypeAlias = Callable[[str], DatabaseFault]
"""Gets the name of the method that is called."""


class FaultyDatabase:
    """A `ClusterDatabase` for one process, over one that others use, too."""

    def __init__(self, database: ClusterDatabase, choose: ChooseFault) -> None:
        """Args: choose: called before each call, and before each page of a scan."""
        self.late: list[Callable[[], None]] = []
        """Statements under way, the oldest first."""
        self._database = database
        self._choose = choose

    def run_late(self, index: int = 0) -> None:
        """Let a statement arrive that is under way."""
        self.late.pop(index)()

    def create(self, *, cluster_id: str, store: str, nodes: int = 1) -> None:
        """Create the tables."""
        self._change(
            "create",
            lambda: self._database.create(cluster_id=cluster_id, store=store, nodes=nodes),
        )

    def describe(self) -> ClusterDescription:
        """Return the cluster as it is."""
        self._read("describe")
        return self._database.describe()

    def begin_session(self, broker: SessionBroker) -> SessionId:
        """Make a session that waits."""
        return self._change("begin_session", lambda: self._database.begin_session(broker))

    def acquire(self, session: SessionId) -> AcquiredEpoch | None:
        """Become the owner if there is none."""
        return self._change("acquire", lambda: self._database.acquire(session))

    def commit(self, session: SessionId, seq: int, change: Change) -> None:
        """Change everything in one step."""
        # Rows are taken now: the caller may change its lists while the statement is under way.
        taken = Change(
            group=change.group,
            rows=list(change.rows),
            forgotten=list(change.forgotten),
            relocated=list(change.relocated),
        )
        self._change("commit", lambda: self._database.commit(session, seq, taken))

    def barrier(self, session: SessionId, *, confirmed: int, seq: int) -> int:
        """Raise the stream to `seq` without a change."""
        return self._change(
            "barrier", lambda: self._database.barrier(session, confirmed=confirmed, seq=seq)
        )

    def observe(self) -> OwnerObservation | None:
        """Return the owner and the number of its stream."""
        self._read("observe")
        return self._database.observe()

    def fence(self, session: SessionId, seen_seq: int) -> bool:
        """Close the stream of the owner, if its number has not moved."""
        return self._change("fence", lambda: self._database.fence(session, seen_seq))

    def end_session(self, session: SessionId) -> None:
        """Close a session of the caller's own."""
        self._change("end_session", lambda: self._database.end_session(session))

    def rows(self, start: bytes, end: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        """Return pages of rows."""
        for page in self._database.rows(start, end):
            self._read("rows")
            yield page

    def groups(self, after: GroupId = BEFORE_ALL) -> Iterator[list[StoredGroup]]:
        """Return pages of groups."""
        for page in self._database.groups(after):
            self._read("groups")
            yield page

    def close(self) -> None:
        """Do nothing: the database is that of others, too."""

    def _read(self, name: str) -> None:
        if self._choose(name) is not DatabaseFault.NONE:
            raise DatabaseUnavailable(f"{name}: the connection to the database was lost")

    def _change(self, name: str, statement: Callable[[], Result]) -> Result:
        fault = self._choose(name)
        match fault:
            case DatabaseFault.NONE:
                return statement()
            case DatabaseFault.AWAY:
                raise DatabaseUnavailable(f"{name}: the database does not answer")
            case DatabaseFault.ANSWER_LOST:
                _unanswered(statement)
            case DatabaseFault.LATE:
                self.late.append(lambda: _unanswered(statement))
            case DatabaseFault.LOST:
                pass
        raise UnknownOutcome(f"{name}: the connection to the database was lost")


def _unanswered(statement: Callable[[], object]) -> None:
    with suppress(DatabaseError):  # the answer was for a connection that has died
        statement()
