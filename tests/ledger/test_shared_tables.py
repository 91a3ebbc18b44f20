"""Record tables of several brokers over shared tables hold the same records.

One suite for processes that share a folder, for processes that share a database, and for nodes of
one process.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from kledger.ledger import AlreadyClosed, LedgerStore
from kledger.ledger.engine.base import Row
from kledger.ledger.shared_file import SharedFile
from kledger.ledger.shared_tables import SharedTables
from kledger.runtime.clock import SystemClock
from kledger.runtime.containment import Containment
from kledger.runtime.metrics import Metrics
from kledger.runtime.tasks import Supervisor
from tests.ledger.shared_words import (
    GUARD_S,
    SharedWords,
    create_shared,
    node_tables,
    put,
    shared_database,
)
from tests.ledger.test_record_table import ROWS

Open: TypeAlias = Callable[[], AbstractAsyncContextManager[SharedTables]]
"""Opens the same tables as another broker."""


@asynccontextmanager
async def opened_folder(folder: Path) -> AsyncIterator[SharedTables]:
    clock, supervisor = SystemClock(), Supervisor()
    tables = await SharedTables.open(
        folder,
        containment=Containment(clock, Metrics()),
        clock=clock,
        supervisor=supervisor,
    )
    try:
        yield tables
    finally:
        await tables.close()
        await supervisor.close()


@asynccontextmanager
async def opened_database(url: str) -> AsyncIterator[SharedTables]:
    async with shared_database(url) as database, node_tables(database) as tables:
        yield tables


@pytest.fixture(params=["folder", "database", "nodes"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    if request.param == "folder":
        yield lambda: opened_folder(tmp_path)
        return
    url = request.getfixturevalue("postgres_url")
    create_shared(request.getfixturevalue("postgres_server"), url)
    async with AsyncExitStack() as stack:
        if request.param == "database":
            yield lambda: opened_database(url)
        else:
            database = await stack.enter_async_context(shared_database(url))
            yield lambda: node_tables(database)


async def test_records_and_deletions_of_one_process_hold_in_the_others(opened: Open) -> None:
    async with opened() as one, opened() as other:
        first, second = SharedWords(one), SharedWords(other)
        await put(one, first, "a", "1")
        await second.wait_for("a", "1")
        await put(other, second, "a", None)
        await first.wait_for("a", None)
        assert second.replayed == [("a", "1"), ("a", None)]


async def test_decisions_under_the_lock_are_made_on_the_newest_records(opened: Open) -> None:
    """And nobody ever goes back to an older one, however many poll at the same time."""
    rounds = 20

    async def count(tables: SharedTables, words: SharedWords) -> None:
        for _ in range(rounds):
            async with tables.change_lock():
                before = int(words.get("n") or 0)
                assert await words.submit("n", str(before + 1)) is None
            await tables.refresh()
            assert int(words.get("n") or 0) > before

    async with opened() as one, opened() as other:
        first, second = SharedWords(one), SharedWords(other)
        await asyncio.gather(count(one, first), count(other, second), count(one, first))
        await first.wait_for("n", str(3 * rounds))
        await second.wait_for("n", str(3 * rounds))
        for words in (first, second):
            seen = [int(record or 0) for _, record in words.replayed]
            assert seen == sorted(set(seen))


async def test_a_cancelled_change_is_written_before_the_next_is_decided(opened: Open) -> None:
    async with opened() as one, opened() as other:
        first, second = SharedWords(one), SharedWords(other)
        begun = asyncio.Event()

        async def change() -> None:
            async with one.change_lock():
                written = first.submit("a", "1")
                begun.set()
                await written

        task = asyncio.create_task(change())
        await begun.wait()
        task.cancel()
        async with other.change_lock():
            assert second.get("a") == "1"
        with pytest.raises(asyncio.CancelledError):
            await task
        assert first.get("a") == "1"


async def test_what_was_written_before_a_refresh_holds_after_it(opened: Open) -> None:
    async with opened() as one, opened() as other:
        first, second = SharedWords(one), SharedWords(other)
        await put(one, first, "a", "1")
        await other.refresh()
        assert second.get("a") == "1"


async def test_refreshes_share_a_poll_that_has_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many clients ask, the thread has one poll to make, and at most one in progress."""
    polls, may_poll = [], threading.Event()
    right_changes = SharedFile.changes

    def changes(file: SharedFile) -> list[Row]:
        polls.append(file)
        assert may_poll.wait(GUARD_S)
        return right_changes(file)

    async with opened_folder(tmp_path) as tables:
        monkeypatch.setattr(SharedFile, "changes", changes)
        first = tables.refreshed()
        async with asyncio.timeout(GUARD_S):
            while not polls:  # noqa: ASYNC110 (ticks of the loop, no time)
                await asyncio.sleep(0)
        others = [asyncio.ensure_future(tables.refresh()) for _ in range(100)]
        await asyncio.sleep(0)
        others[0].cancel()
        may_poll.set()
        found = await asyncio.gather(first, *others, return_exceptions=True)
        assert [asyncio.CancelledError] == [type(each) for each in found if each is not None]
        assert 2 == len(polls)


async def test_a_record_that_came_and_went_unseen_is_no_fault(opened: Open) -> None:
    async with opened() as one, opened() as other:
        first, second = SharedWords(one), SharedWords(other)
        async with one.change_lock():
            assert await first.submit("a", "1") is None
            assert await first.submit("a", None) is None
            assert await first.submit("b", "1") is None
        await second.wait_for("b", "1")
        assert second.get("a") is None


async def test_rows_without_the_lock_are_a_mistake(opened: Open) -> None:
    async with opened() as one:
        with pytest.raises(AssertionError, match="outside the lock"):
            SharedWords(one).submit("a", "1")


async def test_closed_tables_refuse_changes_and_polls(opened: Open) -> None:
    async with opened() as one:
        pass
    with pytest.raises(AlreadyClosed):
        async with one.change_lock():
            pass
    with pytest.raises(AlreadyClosed):
        await one.refresh()
    await one.close()


async def test_closed_tables_leave_no_socket(tmp_path: Path) -> None:
    async with opened_folder(tmp_path):
        pass
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


async def test_closing_waits_for_what_is_written(opened: Open) -> None:
    async with opened() as one, opened() as other:
        first, second = SharedWords(one), SharedWords(other)
        async with one.change_lock():
            written = first.submit("a", "1")
            closing = asyncio.create_task(one.close())
            await asyncio.sleep(0)
        assert await written is None
        await closing
        await other.refresh()
        assert second.get("a") == "1"


async def test_tables_that_are_opened_later_know_what_was_written(opened: Open) -> None:
    async with opened() as one:
        first = SharedWords(one)
        await put(one, first, "a", "1")
        await put(one, first, "b", "2")
        await put(one, first, "a", None)
        async with opened() as other:
            assert SharedWords(other).durable == {"b": "2"}
            assert other.get_row(ROWS.encode_key("b")) is not None
            assert other.get_row(ROWS.encode_key("a")) is None


async def test_keys_of_any_length_and_empty_values_are_rows(opened: Open) -> None:
    rows: list[Row] = [(b"k" * size, b"%d" % size) for size in (1, 1_000, 1_001, 9_000)]
    async with opened() as one, opened() as other:
        async with one.change_lock():
            await one.put_rows([*rows, (b"e", b""), (b"k", b"twice"), (b"k", b"1")])
            assert other.scan_rows(b"x") == []
        await other.refresh()
        assert other.scan_rows() == sorted([*rows, (b"e", b"")])


async def test_a_store_of_its_own_is_a_table_store_with_locks_of_their_own() -> None:
    async with LedgerStore.open(None) as store:
        words = SharedWords(store)
        async with store.change_lock(), store.change_lock():
            assert await words.submit("a", "1") is None
        assert words.get("a") == "1"
