"""A PostgreSQL with a standby server: what was answered survives a failover, or is missed."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import pytest

from kledger.ledger.cluster.commit_stream import CommitStream
from kledger.ledger.cluster.database import (
    AcquiredEpoch,
    Change,
    CommitsLost,
    OwnerObservation,
    SessionId,
    UnknownOutcome,
)
from kledger.ledger.cluster.postgres import PostgresDatabase
from kledger.ledger.cluster.shared_statements import CREATE_SHARED
from kledger.ledger.shared_tables import SharedTables
from tests.ledger.cluster.database_words import broker, groups, inline, owner, put, rows
from tests.ledger.shared_words import SharedWords, node_tables, shared_database
from tests.ledger.shared_words import put as put_word
from tests.postgres_server import USER, PostgresServer

pytestmark = pytest.mark.slow
STANDBY = "standby"
QUERIES_MAX = 2_000


class Pair:
    """A primary server and its standby, with one cluster."""

    def __init__(self) -> None:
        self.primary, self.standby = PostgresServer(), PostgresServer()
        self.primary.initialise()
        self.primary.start()
        self.standby.initialise_standby(self.primary, STANDBY)
        self.standby.start()
        self.set_synchronous(STANDBY)
        self.url = f"postgresql://{USER}@/postgres?host={self.primary.folder},{self.standby.folder}"
        self.database = PostgresDatabase(self.url)
        self.database.create(cluster_id="test-cluster", store="memory://")

    def set_synchronous(self, names: str) -> None:
        self.primary.execute(
            f"ALTER SYSTEM SET synchronous_standby_names = '{names}'", "SELECT pg_reload_conf()"
        )

    def fail_over(self) -> None:
        """Lose the primary server, and make the standby what it was."""
        self.primary.stop(crash=True)
        if self.standby.process_id is None:
            self.standby.start()
        self.standby.promote()

    def wait_for_waiting_commit(self, *, besides: int = 0) -> int:
        """Wait until a commit waits for the standby; return the id of its backend.

        Args:
            besides: the id of one that does not count.
        """
        query = (
            "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            f" AND application_name = 'kledger' AND pid <> {besides}"
        )
        return int(polled(lambda: self.primary.execute(query)))

    def wait_until_kept(self) -> None:
        """Wait until the primary server knows its standby as a synchronous one."""
        query = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        polled(lambda: self.primary.execute(query))

    def close(self) -> None:
        self.database.close()
        self.primary.remove()
        self.standby.remove()


def polled(query: Callable[[], str]) -> str:
    """Repeat a query until it has a result; each query is a separate process."""
    for _ in range(QUERIES_MAX):
        if found := query():
            return found
    raise AssertionError("it did not come")


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def stream_of(database: PostgresDatabase, session: SessionId) -> CommitStream:
    return CommitStream(database, session, AcquiredEpoch(1, 0), acquired_at_ms=0, now_ms=lambda: 0)


def test_synchronous_standby_is_described(pair: Pair) -> None:
    assert STANDBY == pair.database.describe().synchronous


def test_commit_waits_for_the_standby(pair: Pair, thread: ThreadPoolExecutor) -> None:
    session = owner(pair.database)
    pair.standby.stop()
    outcome = thread.submit(pair.database.commit, session, 1, put(b"a"))
    pair.wait_for_waiting_commit()
    assert not outcome.done()
    assert {} == rows(pair.database)

    pair.standby.start()
    outcome.result(60)
    assert {b"a": b"v"} == rows(pair.database)


def test_owner_whose_commit_waits_is_not_fenced(pair: Pair, thread: ThreadPoolExecutor) -> None:
    """The fence waits, too, and then finds that the owner has moved."""
    session = owner(pair.database)
    other = PostgresDatabase(pair.primary.url("postgres"))
    pair.standby.stop()
    with ThreadPoolExecutor(1) as second:
        outcome = thread.submit(pair.database.commit, session, 1, put(b"a"))
        pair.wait_for_waiting_commit()
        fenced = second.submit(other.fence, session, 0)
        pair.standby.start()
        outcome.result(60)
        assert fenced.result(60) is False
    other.close()


def test_cancelled_wait_for_the_standby_is_an_unknown_outcome(
    pair: Pair, thread: ThreadPoolExecutor
) -> None:
    """PostgreSQL answers with success and a warning; the barrier waits for the standby again."""
    session = owner(pair.database)
    pair.standby.stop()
    outcome = thread.submit(pair.database.commit, session, 1, put(b"a"))
    pair.primary.execute(f"SELECT pg_cancel_backend({pair.wait_for_waiting_commit()})")
    with pytest.raises(UnknownOutcome, match="may not be replicated"):
        outcome.result(60)

    barrier = thread.submit(pair.database.barrier, session, confirmed=0, seq=2)
    pair.wait_for_waiting_commit()
    pair.standby.start()
    assert 1 == barrier.result(60)
    pair.wait_until_kept()
    pair.fail_over()
    assert {b"a": b"v"} == rows(pair.database)


def test_repeated_acquisition_waits_for_the_standby(pair: Pair, thread: ThreadPoolExecutor) -> None:
    """A failover could lose an owner that took what it read of itself for an answer."""
    session = pair.database.begin_session(broker(1))
    pair.standby.stop()
    outcome = thread.submit(pair.database.acquire, session)
    pair.primary.execute(f"SELECT pg_cancel_backend({pair.wait_for_waiting_commit()})")
    with pytest.raises(UnknownOutcome, match="may not be replicated"):
        outcome.result(60)

    again = thread.submit(pair.database.acquire, session)
    pair.wait_for_waiting_commit()
    pair.standby.start()
    assert AcquiredEpoch(1, 0) == again.result(60)
    pair.wait_until_kept()
    pair.fail_over()
    assert OwnerObservation(session, 0) == pair.database.observe()


def test_terminated_wait_for_the_standby_is_an_unknown_outcome(
    pair: Pair, thread: ThreadPoolExecutor
) -> None:
    session = owner(pair.database)
    pair.standby.stop()
    outcome = thread.submit(pair.database.commit, session, 1, put(b"a"))
    pair.primary.execute(f"SELECT pg_terminate_backend({pair.wait_for_waiting_commit()})")
    with pytest.raises(UnknownOutcome):
        outcome.result(60)
    pair.standby.start()
    assert 1 == pair.database.barrier(session, confirmed=0, seq=2)


def test_commit_is_there_once_after_its_connections_were_given_up(
    pair: Pair, thread: ThreadPoolExecutor
) -> None:
    """A commit, and then barriers, wait for the standby for longer than their connections may."""
    session = owner(pair.database)
    impatient = PostgresDatabase(pair.primary.url("postgres"), timeout_ms=200)
    tries, enough = 0, threading.Event()

    def wait(_seconds: float) -> bool:
        nonlocal tries
        tries += 1
        if tries == 3:
            enough.set()
        return False

    stream = CommitStream(
        impatient,
        session,
        AcquiredEpoch(1, 0),
        acquired_at_ms=0,
        now_ms=lambda: 0,
        wait_s=wait,
    )
    pair.standby.stop()
    committed = thread.submit(stream.commit, Change(group=inline(b"a")))
    assert enough.wait(60)
    pair.standby.start()
    assert [committed.result(60)] == [each.group_id for each in groups(pair.database)]
    stream.commit(Change(group=inline(b"b")))
    impatient.close()
    assert [b"a", b"b"] == [each.wal.inline for each in groups(pair.database)]


def test_answered_commits_survive_a_failover_and_their_stream_goes_on(
    pair: Pair, thread: ThreadPoolExecutor
) -> None:
    stream = stream_of(pair.database, owner(pair.database))
    answered = set()
    for number in range(50):
        stream.commit(put(b"%d" % number))
        answered.add(b"%d" % number)
    under_way = thread.submit(stream.commit, put(b"under way"))
    pair.fail_over()
    under_way.result(60)
    stream.commit(put(b"afterwards"))
    assert answered | {b"under way", b"afterwards"} == set(rows(pair.database))


def test_failover_that_has_lost_answered_commits_is_noticed(pair: Pair) -> None:
    """The standby is asynchronous, which a broker refuses by default."""
    stream = stream_of(pair.database, owner(pair.database))
    stream.commit(put(b"kept"))
    pair.set_synchronous("")
    pair.standby.stop()
    stream.commit(put(b"lost"))
    pair.fail_over()
    assert {b"kept"} == set(rows(pair.database))
    with pytest.raises(CommitsLost, match="at commit 1, expected 2"):
        stream.commit(put(b"more"))


# Shared tables


async def shared_word(pair: Pair, stack: AsyncExitStack) -> tuple[SharedTables, SharedWords]:
    """Open the shared tables as a new process."""
    database = await stack.enter_async_context(shared_database(pair.url))
    tables = await stack.enter_async_context(node_tables(database))
    return tables, SharedWords(tables)


async def test_shared_row_whose_wait_for_the_standby_was_cancelled_is_answered_when_it_is_kept(
    pair: Pair,
) -> None:
    """PostgreSQL answers with success and a warning; what settles that waits for the standby."""
    pair.primary.execute(CREATE_SHARED)
    async with AsyncExitStack() as stack:
        tables, words = await shared_word(pair, stack)
        async with tables.change_lock():
            await asyncio.to_thread(pair.standby.stop)
            written = words.submit("a", "1")
            waiting = await asyncio.to_thread(pair.wait_for_waiting_commit)
            await asyncio.to_thread(pair.primary.execute, f"SELECT pg_cancel_backend({waiting})")
            again = await asyncio.to_thread(pair.wait_for_waiting_commit, besides=waiting)
            assert again != waiting
            assert not written.is_resolved
            await asyncio.to_thread(pair.standby.start)
            assert await written is None
        await asyncio.to_thread(pair.wait_until_kept)
        await asyncio.to_thread(pair.fail_over)
        await tables.refresh()
        assert {"a": "1"} == words.durable
        await put_word(tables, words, "b", "1")
        assert {"a": "1", "b": "1"} == (await shared_word(pair, stack))[1].durable


async def test_shared_row_that_a_failover_has_lost_is_gone_everywhere(pair: Pair) -> None:
    pair.primary.execute(CREATE_SHARED)
    async with AsyncExitStack() as stack:
        tables, words = await shared_word(pair, stack)
        await put_word(tables, words, "kept", "1")
        await asyncio.to_thread(pair.set_synchronous, "")
        await asyncio.to_thread(pair.standby.stop)
        await put_word(tables, words, "lost", "1")
        await asyncio.to_thread(pair.fail_over)
        await tables.refresh()
        assert {"kept": "1"} == words.durable
        await put_word(tables, words, "more", "1")
        assert {"kept": "1", "more": "1"} == words.durable
