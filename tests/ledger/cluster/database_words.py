"""Words for tests of a cluster's database."""

from kledger.ledger.cluster.database import (
    BEFORE_ALL,
    Change,
    ClusterDatabase,
    GroupId,
    SessionBroker,
    SessionId,
    StoredGroup,
    WalGroup,
)

EVERYTHING = (b"", b"\xff")
"""The range of all keys of the tests."""


def broker(broker_id: int) -> SessionBroker:
    return SessionBroker(broker_id, f"127.0.0.1:{9000 + broker_id}", "", "")


def owner(database: ClusterDatabase, broker_id: int = 1) -> SessionId:
    """Return a session that has just become the owner."""
    session = database.begin_session(broker(broker_id))
    assert database.acquire(session) is not None, "another session owns the cluster"
    return session


def put(key: bytes, value: bytes | None = b"v") -> Change:
    return Change(rows=[(key, value)])


def in_object(key: str) -> WalGroup:
    return WalGroup(key, 100, 80)


def inline(data: bytes) -> WalGroup:
    return WalGroup(None, len(data), 0, data)


def rows(database: ClusterDatabase) -> dict[bytes, bytes]:
    return dict(row for page in database.rows(*EVERYTHING) for row in page)


def groups(database: ClusterDatabase, after: GroupId = BEFORE_ALL) -> list[StoredGroup]:
    return [group for page in database.groups(after) for group in page]
