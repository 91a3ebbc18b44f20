"""PostgreSQL behind a proxy that cuts connections, and servers that refuse."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from kledger.ledger.cluster.commit_stream import CommitStream
from kledger.ledger.cluster.database import (
    AcquiredEpoch,
    Change,
    DatabaseError,
    DatabaseUnavailable,
    DatabaseUnusable,
    SessionFenced,
    SessionId,
    UnknownOutcome,
    WalGroup,
)
from kledger.ledger.cluster.postgres import PostgresDatabase
from kledger.ledger.cluster.postgres_connection import LOST_PEER_MS
from kledger.ledger.cluster.session_state import COMMIT_EVERY_MS, FENCE_AFTER_MS
from tests.ledger.cluster.database_words import broker, groups, inline, owner, put, rows
from tests.ledger.cluster.tcp_proxy import TcpProxy
from tests.postgres_server import PostgresServer

ROOT = Path(__file__).parents[3]


@pytest.fixture
def direct(postgres_url: str) -> Iterator[PostgresDatabase]:
    """A cluster's database, without a proxy."""
    made = PostgresDatabase(postgres_url)
    made.create(cluster_id="test-cluster", store="memory://")
    yield made
    made.close()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[TcpProxy]:
    made = TcpProxy(postgres_server.socket)
    yield made
    made.close()


@pytest.fixture
def proxied(
    direct: PostgresDatabase, proxy: TcpProxy, postgres_url: str
) -> Iterator[PostgresDatabase]:
    """The same database through the proxy."""
    name = postgres_url.partition("@/")[2].partition("?")[0]
    made = PostgresDatabase(f"postgresql://kledger@127.0.0.1:{proxy.port}/{name}?sslmode=disable")
    yield made
    made.close()


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def stream_of(database: PostgresDatabase, session: SessionId) -> CommitStream:
    acquired = database.acquire(session)
    assert acquired is not None
    return CommitStream(
        database, session, acquired, acquired_at_ms=0, now_ms=lambda: 0, wait_s=lambda _: False
    )


# Statements that arrive late


def commit_under_way(
    proxy: TcpProxy, database: PostgresDatabase, session: SessionId, thread: ThreadPoolExecutor
) -> "Future[None]":
    """Commit number 1, then hold number 2 in the proxy, and end its connection for the client."""
    database.commit(session, 1, put(b"first"))  # from now on the server knows the statement
    proxy.is_holding = True
    outcome = thread.submit(database.commit, session, 2, put(b"second"))
    proxy.wait_for_held().cut_client()
    proxy.is_holding = False
    return outcome


def test_statement_that_arrives_after_the_barrier_is_too_late(
    proxy: TcpProxy, proxied: PostgresDatabase, direct: PostgresDatabase, thread: ThreadPoolExecutor
) -> None:
    session = owner(proxied)
    outcome = commit_under_way(proxy, proxied, session, thread)
    with pytest.raises(UnknownOutcome):
        outcome.result(60)

    assert 1 == proxied.barrier(session, confirmed=1, seq=3)
    proxy.wait_for_held().deliver_held()
    assert {b"first": b"v"} == rows(direct)
    proxied.commit(session, 4, put(b"second again"))


def test_statement_that_arrives_before_the_barrier_is_there(
    proxy: TcpProxy, proxied: PostgresDatabase, direct: PostgresDatabase, thread: ThreadPoolExecutor
) -> None:
    session = owner(proxied)
    outcome = commit_under_way(proxy, proxied, session, thread)
    with pytest.raises(UnknownOutcome):
        outcome.result(60)

    proxy.wait_for_held().deliver_held()
    assert 2 == proxied.barrier(session, confirmed=1, seq=3)
    assert {b"first", b"second"} == set(rows(direct))


def test_statement_of_a_fenced_owner_is_too_late(
    proxy: TcpProxy, proxied: PostgresDatabase, direct: PostgresDatabase, thread: ThreadPoolExecutor
) -> None:
    session, standby = owner(proxied), direct.begin_session(broker(2))
    outcome = commit_under_way(proxy, proxied, session, thread)
    with pytest.raises(UnknownOutcome):
        outcome.result(60)

    assert direct.fence(session, 1)
    assert direct.acquire(standby) is not None
    proxy.wait_for_held().deliver_held()
    direct.commit(standby, 1, put(b"of the standby"))
    assert {b"first", b"of the standby"} == set(rows(direct))


# Connections that are cut at each step


@pytest.mark.parametrize("is_delivered", [False, True], ids=["lost", "delivered"])
@pytest.mark.parametrize("step", range(1, 13))
def test_stream_goes_on_after_its_connection_was_cut_at_any_step(
    proxy: TcpProxy,
    proxied: PostgresDatabase,
    direct: PostgresDatabase,
    step: int,
    is_delivered: bool,
) -> None:
    """Each change is there once, with the id that its owner has got."""
    stream = stream_of(proxied, owner(direct))
    proxy.cut_at(step, is_delivered=is_delivered)
    ids = [
        stream.commit(Change(group=inline(b"%d" % number), rows=[(b"%d" % number, b"v")]))
        for number in range(6)
    ]
    assert proxy.step_count >= step, "the connection was not cut"
    assert [(each, b"%d" % number) for number, each in enumerate(ids)] == [
        (each.group_id, each.wal.inline) for each in groups(direct)
    ]
    assert {b"%d" % number for number in range(6)} == set(rows(direct))


def test_stream_settles_what_it_cannot_know(
    proxy: TcpProxy, proxied: PostgresDatabase, direct: PostgresDatabase
) -> None:
    stream = stream_of(proxied, owner(direct))
    stream.commit(put(b"a"))
    proxy.cut_at(1, is_delivered=True)
    assert stream.commit(put(b"b")).epoch == 1
    assert 1 == stream.barrier_count
    assert {b"a", b"b"} == set(rows(direct))


# Servers that refuse or are away


def test_server_that_stops_is_away_until_it_is_back(
    postgres_url: str, direct: PostgresDatabase, postgres_server: PostgresServer
) -> None:
    session = owner(direct)
    direct.commit(session, 1, put(b"a"))
    with postgres_server.stopped():
        # It depends on whether the end of the connection was noticed before the commit was sent.
        with pytest.raises((DatabaseUnavailable, UnknownOutcome)):
            direct.commit(session, 2, put(b"b"))
        with pytest.raises(DatabaseUnavailable, match="no connection"):
            direct.observe()
        with pytest.raises(DatabaseUnavailable, match="no connection"):
            direct.barrier(session, confirmed=1, seq=3)

    assert 1 == direct.barrier(session, confirmed=1, seq=3)
    direct.commit(session, 4, put(b"b"))


def test_stream_waits_while_the_server_is_unavailable(
    direct: PostgresDatabase, postgres_server: PostgresServer, thread: ThreadPoolExecutor
) -> None:
    acquired = direct.acquire(session := owner(direct))
    assert acquired is not None
    is_waiting, may_go_on = threading.Event(), threading.Event()

    def wait(_seconds: float) -> bool:
        is_waiting.set()
        assert may_go_on.wait(60)
        return False

    stream = CommitStream(
        direct, session, acquired, acquired_at_ms=0, now_ms=lambda: 0, wait_s=wait
    )
    with postgres_server.stopped(crash=True):
        outcome = thread.submit(stream.commit, put(b"a"))
        assert is_waiting.wait(60)
    may_go_on.set()
    assert 1 == outcome.result(60).epoch
    assert {b"a": b"v"} == rows(direct)


@pytest.mark.parametrize(
    ("change_url", "message"),
    [
        (lambda url: url.replace("@/test_", "@/no_such_"), "does not exist"),
        (lambda url: url.replace("kledger@", "nobody_else@"), "does not exist"),
        (lambda _: "mysql://127.0.0.1/x", "scheme"),
        (lambda url: url + "&sslmode=whatever", "sslmode"),
    ],
)
def test_url_that_cannot_be_used_is_refused(
    postgres_url: str, change_url: Callable[[str], str], message: str
) -> None:
    database = PostgresDatabase(change_url(postgres_url))
    try:
        with pytest.raises(DatabaseUnusable, match=message):
            database.describe()
    finally:
        database.close()


@pytest.mark.parametrize(
    ("state", "error"),
    [("53100", DatabaseUnavailable), ("40001", DatabaseUnavailable), ("40003", UnknownOutcome)],
    ids=["disk full", "serialization failure", "completion unknown"],
)
def test_statement_that_the_server_refuses_changes_nothing_and_may_be_repeated(
    direct: PostgresDatabase,
    postgres_server: PostgresServer,
    postgres_url: str,
    state: str,
    error: type[DatabaseError],
) -> None:
    session = owner(direct)
    name = postgres_url.partition("@/")[2].partition("?")[0]
    postgres_server.execute(
        "CREATE FUNCTION kledger.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        f" 'BEGIN RAISE EXCEPTION SQLSTATE ''{state}'' USING MESSAGE = ''not now''; END'",
        "CREATE TRIGGER refusing BEFORE INSERT ON kledger.row EXECUTE FUNCTION kledger.refuse()",
        database=name,
    )
    with pytest.raises(error, match="not now"):
        direct.commit(session, 1, put(b"a"))
    postgres_server.execute("DROP TRIGGER refusing ON kledger.row", database=name)
    direct.commit(session, 1, put(b"a"))


def test_value_that_has_no_form_in_the_database_is_no_unknown_outcome(
    direct: PostgresDatabase,
) -> None:
    """Nothing was sent; a barrier and the same change again would never end."""
    session = owner(direct)
    with pytest.raises(DatabaseUnusable, match="out of"):
        direct.commit(session, 1, Change(group=WalGroup("wal/1", 2**70, 0)))
    direct.commit(session, 1, put(b"a"))


def test_settings_of_the_database_by_which_commits_are_lost_are_shown(
    direct: PostgresDatabase, postgres_server: PostgresServer
) -> None:
    found = direct.describe()
    assert ("", ("fsync = off",)) == (found.synchronous, tuple(found.loses_on_crash))


def test_commits_wait_for_the_disk_whatever_the_default_of_the_database_is(
    direct: PostgresDatabase, postgres_server: PostgresServer, postgres_url: str
) -> None:
    name = postgres_url.partition("@/")[2].partition("?")[0]
    postgres_server.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    again = PostgresDatabase(postgres_url)
    try:
        again.describe()
        found = postgres_server.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'kledger'"
            f" AND datname = '{name}'"
        )
        assert 2 <= int(found)
        assert [("on",)] == [
            tuple(each) for each in again._read("SELECT current_setting('synchronous_commit')")
        ]
    finally:
        again.close()


def test_connection_to_a_lost_machine_ends_before_its_owner_is_fenced(
    proxied: PostgresDatabase,
) -> None:
    proxied.describe()
    end = proxied._others._connection._transport.get_extra_info("socket")
    assert 1 == end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert LOST_PEER_MS == end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert LOST_PEER_MS + COMMIT_EVERY_MS < FENCE_AFTER_MS


def test_call_of_a_closed_database_fails(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url)
    database.close()
    database.close()
    with pytest.raises(DatabaseUnavailable, match="closed"):
        database.describe()


def test_closing_ends_a_call_under_way(
    proxy: TcpProxy, proxied: PostgresDatabase, thread: ThreadPoolExecutor
) -> None:
    session = owner(proxied)
    proxied.commit(session, 1, put(b"a"))
    proxy.is_holding = True
    outcome = thread.submit(proxied.commit, session, 2, put(b"b"))
    proxy.wait_for_held()
    proxied.close()
    with pytest.raises(UnknownOutcome):
        outcome.result(60)


def test_backup_is_prepared_as_documented(
    direct: PostgresDatabase, postgres_server: PostgresServer, postgres_url: str
) -> None:
    """The statements of docs/CLUSTER.md end the owner of a backup and skip epochs."""
    session = owner(direct)
    direct.commit(session, 1, put(b"a"))
    text = (ROOT / "docs" / "CLUSTER.md").read_text("utf-8")
    commands = text.partition("```sql\n")[2].partition("```")[0].split(";")
    name = postgres_url.partition("@/")[2].partition("?")[0]
    postgres_server.execute(*filter(str.strip, commands), database=name)
    with pytest.raises(SessionFenced):
        direct.commit(session, 2, put(b"b"))
    acquired = direct.acquire(direct.begin_session(broker(1)))
    assert AcquiredEpoch(1_000_002, 0) == acquired
    assert {b"a": b"v"} == rows(direct)
