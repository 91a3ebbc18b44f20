"""Shared tables in a database whose connections die, which is away, or has lost commits."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from random import Random

import pytest
import uvloop

from kledger.ledger import StorageFailed, StoreUnusable
from kledger.ledger.cluster import shared_database as module
from kledger.ledger.cluster.postgres_connection import LOST_PEER_MS
from kledger.ledger.cluster.shared_database import SharedDatabase
from kledger.ledger.shared_tables import SharedTables
from kledger.runtime.clock import SystemClock
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor
from tests.ledger.cluster.tcp_proxy import TcpProxy
from tests.ledger.shared_words import (
    GUARD_S,
    SharedWords,
    create_shared,
    node_tables,
    put,
    shared_database,
)
from tests.postgres_server import PostgresServer


class Process:
    """A process with one node; `clock` moves its polls only when a test advances it."""

    def __init__(self, database: SharedDatabase, tables: SharedTables, clock: ManualClock) -> None:
        self.database = database
        self.tables = tables
        self.clock = clock
        self.words = SharedWords(tables)

    async def put(self, key: str, record: str | None) -> None:
        await put(self.tables, self.words, key, record)

    async def try_put(self, key: str, record: str) -> Exception | None:
        """Return why it failed."""
        try:
            async with self.tables.change_lock():
                return await self.words.submit(key, record)
        except StorageFailed as error:
            return error

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so, checking at every tick."""
        async with asyncio.timeout(GUARD_S):
            while not condition():
                self.clock.advance(module.POLL_MS)
                await asyncio.sleep(0)


Start = Callable[[str], Awaitable[Process]]


@pytest.fixture
def url(postgres_server: PostgresServer, postgres_url: str) -> str:
    create_shared(postgres_server, postgres_url)
    return postgres_url


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[TcpProxy]:
    made = TcpProxy(postgres_server.socket)
    yield made
    made.close()


@pytest.fixture
def proxied_url(url: str, proxy: TcpProxy) -> str:
    name = url.partition("@/")[2].partition("?")[0]
    return f"postgresql://kledger@127.0.0.1:{proxy.port}/{name}?sslmode=disable"


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def begin(url: str) -> Process:
            clock = ManualClock()
            database = await stack.enter_async_context(shared_database(url, clock=clock))
            tables = await stack.enter_async_context(node_tables(database))
            return Process(database, tables, clock)

        yield begin


@pytest.fixture
async def pair(url: str, proxied_url: str, start: Start) -> tuple[Process, Process]:
    """A process behind the proxy, and another one."""
    return await start(proxied_url), await start(url)


def execute(server: PostgresServer, url: str, *commands: str) -> str:
    return server.execute(*commands, database=url.partition("@/")[2].partition("?")[0])


def end_sessions(server: PostgresServer, url: str) -> None:
    """End the connections of a database at the server."""
    execute(
        server,
        url,
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


# Following


async def test_changes_are_notified(url: str, start: Start) -> None:
    """No clock moves: no process polls without a notification."""
    one, other = await start(url), await start(url)
    await one.put("a", "1")
    await other.words.wait_for("a", "1")
    await other.put("a", None)
    await one.words.wait_for("a", None)


async def test_changes_are_found_without_a_notification(
    url: str, start: Start, postgres_server: PostgresServer
) -> None:
    """The connection that listened has died, and the notification with it."""
    one, other = await start(url), await start(url)
    end_sessions(postgres_server, url)
    await one.put("a", "1")
    await other.until(lambda: other.words.get("a") == "1")
    # It listens again, too.
    await one.put("b", "1")
    await other.words.wait_for("b", "1")


async def test_refreshes_of_all_nodes_share_a_poll(
    url: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = []
    original = SharedDatabase._poll_once

    async def poll_once(database: SharedDatabase) -> None:
        polls.append(database)
        await original(database)

    one, other = await start(url), await start(url)
    await one.put("a", "1")
    await other.words.wait_for("a", "1")
    monkeypatch.setattr(SharedDatabase, "_poll_once", poll_once)
    async with node_tables(other.database) as second:
        polls.clear()
        first = other.tables.refreshed()
        await asyncio.sleep(0)
        refreshes = [each.refresh() for each in (other.tables, second) * 50]
        await asyncio.gather(first, *refreshes)
    assert 2 == len(polls)


async def test_deletions_that_are_forgotten_are_found_by_reading_everything(
    url: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DELETIONS_MAX", 3)
    monkeypatch.setattr(module, "FORGET_ROWS", 1)
    monkeypatch.setattr(SharedDatabase, "_poll_in_background", lambda _: None)
    one, other = await start(url), await start(url)
    await one.put("a", "1")
    await one.put("b", "1")
    await other.tables.refresh()
    await one.put("a", None)
    for number in range(6):
        await one.put("c", str(number))
    assert other.database.copy.seen < one.database.copy.forgotten
    await other.tables.refresh()
    assert {"b": "1", "c": "5"} == other.words.durable
    assert {"b": "1", "c": "5"} == one.words.durable


async def test_rows_that_a_failover_has_lost_are_forgotten(
    url: str, start: Start, postgres_server: PostgresServer
) -> None:
    """The new primary has other writes under the same numbers."""
    one, other = await start(url), await start(url)
    await one.put("a", "1")
    await one.put("b", "1")
    await other.tables.refresh()
    execute(
        postgres_server,
        url,
        "UPDATE kledger.shared_state SET number = 1",
        "DELETE FROM kledger.shared_write WHERE number = 2",
        "DELETE FROM kledger.shared_row WHERE number = 2",
    )
    await other.put("c", "1")
    await one.tables.refresh()
    assert {"a": "1", "c": "1"} == one.words.durable
    assert {"a": "1", "c": "1"} == other.words.durable


# Connections that die


@pytest.mark.parametrize("is_delivered", [False, True], ids=["lost", "delivered"])
@pytest.mark.parametrize("step", range(1, 17))
async def test_changes_hold_once_after_a_connection_was_cut_at_any_step(
    pair: tuple[Process, Process], proxy: TcpProxy, step: int, is_delivered: bool
) -> None:
    one, other = pair
    await one.put("0", "0")  # the server knows the statements now
    proxy.cut_at(step, is_delivered=is_delivered)
    for number in range(1, 5):
        await one.put(str(number), str(number))
    assert proxy.step_count >= step, "the connection was not cut"
    await other.tables.refresh()
    assert {str(number): str(number) for number in range(5)} == other.words.durable
    assert 5 == other.database.copy.seen == one.database.copy.seen
    assert other.words.durable == one.words.durable


async def write_under_way(
    one: Process, proxy: TcpProxy
) -> "tuple[asyncio.Task[Exception | None], Callable[[], None]]":
    """Hold a write in the proxy, and end its connection for the client.

    Returns:
        The change, and what lets its statement arrive at the server.
    """
    begun = asyncio.Event()

    async def change() -> Exception | None:
        async with one.tables.change_lock():
            proxy.is_holding = True
            written = one.words.submit("a", "1")
            begun.set()
            return await written

    task = asyncio.create_task(change())
    await begun.wait()
    held = await asyncio.to_thread(proxy.wait_for_held)
    held.cut_client()
    proxy.is_holding = False
    return task, held.deliver_held


async def test_write_that_arrives_late_is_waited_for(
    proxied_url: str, proxy: TcpProxy, start: Start
) -> None:
    """Its session has the lock: nobody can know earlier whether it is there."""
    one = await start(proxied_url)
    await one.put("0", "0")
    task, deliver = await write_under_way(one, proxy)
    await asyncio.to_thread(deliver)
    assert await asyncio.wait_for(task, GUARD_S) is None
    assert 2 == one.database.copy.seen
    assert 1 == one.database.settled_count


async def test_write_that_never_arrives_is_written_again(
    url: str, pair: tuple[Process, Process], proxy: TcpProxy, postgres_server: PostgresServer
) -> None:
    one, other = pair
    await one.put("0", "0")
    task, _ = await write_under_way(one, proxy)
    end_sessions(postgres_server, url)
    await one.until(task.done)
    assert task.result() is None
    await other.tables.refresh()
    assert {"0": "0", "a": "1"} == other.words.durable
    assert 2 == other.database.copy.seen


async def test_change_goes_on_when_its_lock_was_lost_and_nobody_has_written(
    url: str, start: Start, postgres_server: PostgresServer
) -> None:
    one = await start(url)
    async with one.tables.change_lock():
        end_sessions(postgres_server, url)
        assert await one.words.submit("a", "1") is None
        assert await one.words.submit("b", "1") is None
    assert {"a": "1", "b": "1"} == one.words.durable


async def test_change_fails_when_its_lock_was_lost_and_others_have_written(
    url: str, start: Start, postgres_server: PostgresServer
) -> None:
    """A process that was stopped with the lock: the server has ended its session."""
    one = await start(url)
    async with one.tables.change_lock():
        end_sessions(postgres_server, url)
        other = await start(url)
        await other.put("a", "other")
        for _ in range(2):
            error = await one.words.submit("a", "1")
            assert isinstance(error, StorageFailed)
            assert "others have written" in str(error)
    await one.put("b", "1")
    assert {"a": "other", "b": "1"} == one.words.durable


async def test_write_fails_if_another_has_its_number(
    url: str, start: Start, postgres_server: PostgresServer
) -> None:
    """The lock alone does not order writes: each names the one that its process has seen."""
    one = await start(url)
    await one.put("a", "1")
    async with one.tables.change_lock():
        execute(
            postgres_server,
            url,
            "UPDATE kledger.shared_state SET number = number + 1",
            "INSERT INTO kledger.shared_write SELECT number, 'other' FROM kledger.shared_state",
        )
        error = await one.words.submit("a", "2")
        assert isinstance(error, StorageFailed)
        assert "others have written under the lock" in str(error)
    await one.put("b", "1")
    assert {"a": "1", "b": "1"} == one.words.durable


async def test_session_with_the_lock_ends_when_its_process_is_idle(url: str, start: Start) -> None:
    one = await start(url)
    limit = partial(
        one.database._writer.fetch, "SELECT current_setting('idle_session_timeout') AS found"
    )
    async with one.tables.change_lock():
        assert ["10s"] == [each["found"] for each in await limit()]
    await one.until(lambda: one.database._hold is None)
    assert ["0"] == [each["found"] for each in await limit()]


# Servers that are away


async def test_database_that_is_away_fails_changes_and_is_followed_again(
    url: str, start: Start, postgres_server: PostgresServer
) -> None:
    one, other = await start(url), await start(url)
    await one.put("a", "1")
    await other.words.wait_for("a", "1")
    with postgres_server.stopped(crash=True):
        assert isinstance(await one.try_put("a", "2"), StorageFailed)
        with pytest.raises(StorageFailed):
            await one.tables.refresh()
        assert "1" == one.words.get("a")
    await one.put("a", "3")
    await other.until(lambda: other.words.get("a") == "3")


async def test_changes_that_wait_for_the_lock_fail_together(
    url: str, start: Start, postgres_server: PostgresServer
) -> None:
    one = await start(url)
    with postgres_server.stopped():
        found = await asyncio.gather(*(one.try_put("a", str(number)) for number in range(20)))
    assert {StorageFailed} == set(map(type, found))
    await one.put("a", "1")


async def test_write_is_settled_when_the_server_is_back(
    url: str, start: Start, postgres_server: PostgresServer
) -> None:
    one = await start(url)
    async with one.tables.change_lock():
        with postgres_server.stopped(crash=True):
            written = one.words.submit("a", "1")
            await one.until(lambda: one.database.settled_count == 1)
        task = asyncio.ensure_future(one.tables.refresh())
        await one.until(lambda: written.is_resolved)
        assert await written is None
    await asyncio.gather(task, return_exceptions=True)
    assert {"a": "1"} == one.words.durable


async def test_node_that_is_closed_does_not_wait_for_a_server_that_is_unavailable(
    url: str, start: Start, postgres_server: PostgresServer
) -> None:
    one = await start(url)

    async def change() -> Exception | None:
        async with one.tables.change_lock():
            postgres_server.stop(crash=True)
            return await one.words.submit("a", "1")

    try:
        task = asyncio.create_task(change())
        await one.until(lambda: one.database.settled_count == 1)
        closing = asyncio.create_task(one.tables.close())
        await one.until(closing.done)
        assert isinstance(await task, StorageFailed)
    finally:
        postgres_server.start()


async def test_database_without_the_tables_is_refused(postgres_url: str) -> None:
    supervisor = Supervisor()
    with pytest.raises(StoreUnusable, match="has no cluster"):
        await SharedDatabase.open(postgres_url, clock=SystemClock(), supervisor=supervisor)
    await supervisor.close()


async def test_database_that_is_away_is_not_opened(
    url: str, postgres_server: PostgresServer
) -> None:
    supervisor = Supervisor()
    with postgres_server.stopped(), pytest.raises(StorageFailed, match="no connection"):
        await SharedDatabase.open(url, clock=SystemClock(), supervisor=supervisor)
    await supervisor.close()


def test_tables_work_on_the_event_loop_of_servers(proxied_url: str) -> None:
    """Their connections live on it, and watch whether the machine at the other end is there."""

    async def change() -> int:
        async with shared_database(proxied_url) as database, node_tables(database) as tables:
            words = SharedWords(tables)
            await put(tables, words, "a", "1")
            await tables.refresh()
            assert "1" == words.get("a")
            end = database._writer.current._transport.get_extra_info("socket")
            return int(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert LOST_PEER_MS == runner.run(change())


# Everything together


@pytest.mark.parametrize("seed", range(4))
async def test_processes_whose_connections_are_cut_hold_what_was_answered(
    url: str, postgres_server: PostgresServer, seed: int
) -> None:
    """What was answered is there, what failed is not, and nobody goes back to an older record."""
    random = Random(seed)
    name = url.partition("@/")[2].partition("?")[0]
    expected: dict[str, str] = {}
    counted = 0

    async def count(tables: SharedTables, words: SharedWords, proxy: TcpProxy, name: str) -> None:
        nonlocal counted
        for number in range(20):
            proxy.cut_at(random.randrange(1, 40), is_delivered=random.random() < 0.5)
            with suppress(StorageFailed):  # the lock was not given
                async with tables.change_lock():
                    next_count = str(int(words.get("n") or 0) + 1)
                    first = words.submit("n", next_count)
                    second = words.submit(f"{name}-{number}", "v")
                    is_counted = await first is None
                    counted += is_counted
                    if await second is None:
                        expected[f"{name}-{number}"] = "v"

    async with AsyncExitStack() as stack:
        nodes: list[tuple[SharedTables, SharedWords, TcpProxy, str]] = []
        for process in range(3):
            proxy = TcpProxy(postgres_server.socket)
            stack.callback(proxy.close)
            proxied = f"postgresql://kledger@127.0.0.1:{proxy.port}/{name}?sslmode=disable"
            database = await stack.enter_async_context(shared_database(proxied))
            for node in range(2):
                tables = await stack.enter_async_context(node_tables(database))
                nodes.append((tables, SharedWords(tables), proxy, f"{process}-{node}"))
        await asyncio.gather(*(count(*each) for each in nodes))

        expected["n"] = str(counted)
        for tables, words, proxy, _ in nodes:
            proxy.cut_at(0, is_delivered=False)  # no more
            await tables.refresh()
            assert expected == words.durable
            counts = [int(record or 0) for key, record in words.replayed if key == "n"]
            assert counts == sorted(set(counts))
