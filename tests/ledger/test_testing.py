"""The tools for users: a power cut kills the store on top."""

import threading
from pathlib import Path

import pytest

from kledger.ledger import Fenced, LedgerError, LedgerStore, StoreConfig
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.faulty import Operation
from kledger.ledger.testing import FaultyEngine, ManualClock
from tests.ledger.words import OpenStore, add_all, all_of, append, numbers, settled


@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_a_dead_store_writes_nothing_more(open_store: OpenStore, durability: str) -> None:
    """Closing it afterwards must not write what it still believes."""
    engine = FaultyEngine(None)
    config = StoreConfig(durability=durability)  # type: ignore[arg-type]
    store = await open_store(engine=engine, config=config)
    ml = await store.open_managed_ledger("orders")
    await add_all(ml, numbers(0, 9))
    engine.drop_unsynced()
    with pytest.raises(Fenced):
        await ml.add_entry(b"late")
    with pytest.raises(Fenced):
        store.get_row(b"k")
    await store.close()
    again = await open_store(engine=engine, config=config)
    survived = numbers(0, 9) if durability == "fsync" else []
    assert survived == await all_of(await again.open_managed_ledger("orders"))


async def test_a_power_cut_without_a_store() -> None:
    engine = FaultyEngine(None)
    engine.drop_unsynced()
    async with LedgerStore.open(None, engine=engine) as store:
        await store.put_rows([(b"k", b"v")])
    engine.drop_unsynced()
    engine.close()


class Late(FaultyEngine):
    """A commit submitted to the thread begins at the worst moment: during the power cut."""

    is_late = False
    is_reached = False

    def commit(self, group: CommitGroup, *, sync: bool) -> None:
        incarnation, self.is_reached = self._incarnation, self.is_late
        while self.is_late and incarnation == self._incarnation:
            threading.Event().wait(0.0005)
        super().commit(group, sync=sync)


@pytest.mark.parametrize("where", ["memory", "disk"])
async def test_a_commit_that_begins_during_the_cut_never_enters_the_next_life(
    open_store: OpenStore, tmp_path: Path, where: str
) -> None:
    engine = Late(None if where == "memory" else tmp_path)
    ml = await (await open_store(engine=engine)).open_managed_ledger("orders")
    await add_all(ml, numbers(0, 2))
    engine.is_late = True
    append(ml, b"late")
    while not engine.is_reached:
        await settled(ManualClock())
    engine.drop_unsynced()
    engine.is_late = False
    again = await (await open_store(engine=engine)).open_managed_ledger("orders")
    assert numbers(0, 2) == await all_of(again)
    await again.add_entry(b"3")
    assert numbers(0, 3) == await all_of(again)
    engine.close()


@pytest.mark.parametrize(("op", "last"), [("commit", 2), ("sync", 3)])
async def test_a_store_that_takes_over_an_engine_is_not_blocked(
    open_store: OpenStore, engine: FaultyEngine, op: Operation, last: int
) -> None:
    """The group in flight ends before the second store reads, which sees it if it was written."""
    ml = await (await open_store(engine=engine)).open_managed_ledger("orders")
    await add_all(ml, numbers(0, 2))
    hold = engine.hold_next(op)
    results: list[LedgerError | None] = []
    append(ml, b"3", lambda position, error: results.append(error))
    await hold.reached()
    again = await (await open_store(engine=engine)).open_managed_ledger("orders")
    hold.release()
    assert [Fenced] == list(map(type, results))
    assert numbers(0, last) == await all_of(again)
    await again.add_entry(b"more")
    assert [*numbers(0, last), b"more"] == await all_of(again)
