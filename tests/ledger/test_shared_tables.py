"""Record tables of several processes over shared tables hold the same records."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kledger.ledger import AlreadyClosed, LedgerStore, TableStore
from kledger.ledger.engine.base import Row
from kledger.ledger.record_table import RecordTable
from kledger.ledger.shared_file import SharedFile
from kledger.ledger.shared_tables import SharedTables
from kledger.runtime.clock import SystemClock
from kledger.runtime.containment import Containment
from kledger.runtime.metrics import Metrics
from kledger.runtime.tasks import Supervisor
from tests.ledger.test_record_table import ROWS

GUARD_S = 60


class SharedWords(RecordTable[str, str]):
    """A table that tells its waiters of every replay."""

    def __init__(self, tables: TableStore) -> None:
        super().__init__(tables, ROWS, self._note)
        self.replayed: list[tuple[str, str | None]] = []
        self.changed = asyncio.Event()
        self.load()

    def _note(self, key: str) -> None:
        self.replayed.append((key, self.get(key)))
        self.changed.set()

    async def wait_for(self, key: str, record: str | None) -> None:
        async with asyncio.timeout(GUARD_S):
            while self.get(key) != record:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[SharedTables]:
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


async def put(tables: TableStore, words: SharedWords, key: str, record: str | None) -> None:
    async with tables.change_lock():
        assert await words.submit(key, record) is None


async def test_records_and_deletions_of_one_process_hold_in_the_others(tmp_path: Path) -> None:
    async with opened(tmp_path) as one, opened(tmp_path) as other:
        first, second = SharedWords(one), SharedWords(other)
        await put(one, first, "a", "1")
        await second.wait_for("a", "1")
        await put(other, second, "a", None)
        await first.wait_for("a", None)
        assert second.replayed == [("a", "1"), ("a", None)]


async def test_decisions_under_the_lock_are_made_on_the_newest_records(tmp_path: Path) -> None:
    rounds = 20

    async def count(tables: TableStore, words: SharedWords) -> None:
        for _ in range(rounds):
            async with tables.change_lock():
                before = int(words.get("n") or 0)
                assert await words.submit("n", str(before + 1)) is None

    async with opened(tmp_path) as one, opened(tmp_path) as other:
        first, second = SharedWords(one), SharedWords(other)
        await asyncio.gather(count(one, first), count(other, second), count(one, first))
        await first.wait_for("n", str(3 * rounds))
        await second.wait_for("n", str(3 * rounds))


async def test_a_cancelled_change_is_written_before_the_next_is_decided(tmp_path: Path) -> None:
    async with opened(tmp_path) as one, opened(tmp_path) as other:
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


async def test_what_was_written_before_a_refresh_holds_after_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as one, opened(tmp_path) as other:
        first, second = SharedWords(one), SharedWords(other)
        await put(one, first, "a", "1")
        await other.refresh()
        assert second.get("a") == "1"


async def test_refreshes_share_a_look_that_has_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many clients ask, the thread has one look to make, and at most one under way."""
    looks, may_look = [], threading.Event()
    right_changes = SharedFile.changes

    def changes(file: SharedFile) -> list[Row]:
        looks.append(file)
        assert may_look.wait(GUARD_S)
        return right_changes(file)

    async with opened(tmp_path) as tables:
        monkeypatch.setattr(SharedFile, "changes", changes)
        first = tables.refreshed()
        async with asyncio.timeout(GUARD_S):
            while not looks:  # noqa: ASYNC110 (ticks of the loop, no time)
                await asyncio.sleep(0)
        others = [asyncio.ensure_future(tables.refresh()) for _ in range(100)]
        await asyncio.sleep(0)
        others[0].cancel()
        may_look.set()
        found = await asyncio.gather(first, *others, return_exceptions=True)
        assert [asyncio.CancelledError] == [type(each) for each in found if each is not None]
        assert 2 == len(looks)


async def test_a_record_that_came_and_went_unseen_is_no_fault(tmp_path: Path) -> None:
    async with opened(tmp_path) as one, opened(tmp_path) as other:
        first, second = SharedWords(one), SharedWords(other)
        async with one.change_lock():
            assert await first.submit("a", "1") is None
            assert await first.submit("a", None) is None
            assert await first.submit("b", "1") is None
        await second.wait_for("b", "1")
        assert second.get("a") is None


async def test_rows_without_the_lock_are_a_mistake(tmp_path: Path) -> None:
    async with opened(tmp_path) as one:
        with pytest.raises(AssertionError, match="outside the lock"):
            SharedWords(one).submit("a", "1")


async def test_closed_tables_refuse_changes_and_leave_no_socket(tmp_path: Path) -> None:
    async with opened(tmp_path) as one:
        pass
    with pytest.raises(AlreadyClosed):
        async with one.change_lock():
            pass
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


async def test_a_store_of_its_own_is_a_table_store_with_locks_of_their_own() -> None:
    async with LedgerStore.open(None) as store:
        words = SharedWords(store)
        async with store.change_lock(), store.change_lock():
            assert await words.submit("a", "1") is None
        assert words.get("a") == "1"
