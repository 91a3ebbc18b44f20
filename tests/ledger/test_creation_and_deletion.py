"""Managed ledgers that are created at once, and deleted together."""

import asyncio

import pytest

from kledger.ledger import Fenced, LedgerError, LedgerState, Position, StorageFailed
from kledger.ledger.engine.errors import EntryMissing, StorageError
from kledger.ledger.metadata.keys import ID_COUNTER
from kledger.ledger.testing import FaultyEngine
from tests.ledger.words import COLD, SMALL, OpenStore, add_all, all_of, numbers


def not_lost(error: LedgerError) -> None:
    raise AssertionError(f"it was not created: {error}")


# Deleted together


async def test_many_are_deleted_in_one_group(open_store: OpenStore) -> None:
    """Each deletion had its own scan and sync: a topic of many partitions took minutes."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    names = [f"orders-{number}" for number in range(20)]
    handles = [await store.open_managed_ledger(name, config=SMALL) for name in names]
    for ml in handles:
        await add_all(ml, numbers(0, 5))
    kept = await store.open_managed_ledger("kept")
    await kept.add_entry(b"0")
    commits = engine.calls["commit"]
    await store.delete_managed_ledgers([*names, "never there", names[0]])
    assert 1 == engine.calls["commit"] - commits
    assert ["kept"] == store.managed_ledger_names()
    assert {LedgerState.CLOSED} == {ml.state for ml in handles}
    assert {-1} == {engine.last_entry(info.ledger_id) for ml in handles for info in ml.ledgers}
    assert [b"0"] == await all_of(kept)


async def test_a_deletion_of_many_that_was_not_written_changes_none(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    handles = [await store.open_managed_ledger(name) for name in ("a", "b")]
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await store.delete_managed_ledgers(["a", "b"])
    assert (True, True) == (store.has_managed_ledger("a"), store.has_managed_ledger("b"))
    for ml in handles:
        await ml.add_entry(b"0")
        assert [b"0"] == await all_of(ml)


class Unreadable(FaultyEngine):
    """An engine whose rows cannot be read while a flag is set."""

    def __init__(self) -> None:
        super().__init__(None)
        self.is_unreadable = False

    def get(self, key: bytes) -> bytes | None:
        if self.is_unreadable:
            raise StorageError("the index cannot be read")
        return super().get(key)


async def test_a_deletion_that_cannot_read_changes_nothing(open_store: OpenStore) -> None:
    """What the engine raised came out as it was, an error that no caller of this package knows."""
    engine = Unreadable()
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders")
    await ml.add_entry(b"0")
    engine.is_unreadable = True
    with pytest.raises(StorageFailed):
        await store.delete_managed_ledger("orders")
    engine.is_unreadable = False
    await ml.add_entry(b"1")
    assert [b"0", b"1"] == await all_of(ml)


# Created at once


async def test_a_created_managed_ledger_takes_entries_before_it_is_durable(
    open_store: OpenStore,
) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    lost: list[LedgerError] = []
    commits = engine.calls["commit"]
    ml = store.create_managed_ledger_nowait("orders", config=SMALL, lost=lost.append)
    assert ml is not None
    assert store.create_managed_ledger_nowait("orders", lost=lost.append) is None
    await ml.add_entry(b"0")
    assert (1, []) == (engine.calls["commit"] - commits, lost)
    await ml.close()
    assert store.create_managed_ledger_nowait("orders", lost=lost.append) is None
    again = await store.open_managed_ledger("orders")
    assert [b"0"] == await all_of(again)


async def test_a_created_managed_ledger_without_an_entry_is_closed_and_deleted(
    open_store: OpenStore,
) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    for how in ("close", "delete", "open"):
        ml = store.create_managed_ledger_nowait(how, lost=not_lost)
        assert ml is not None
        if how == "close":
            await ml.close()
        elif how == "open":
            assert [] == await all_of(await store.open_managed_ledger(how))
        await store.delete_managed_ledger(how)
    assert [ID_COUNTER] == [key for key, _ in engine.scan(b"", b"\xff")]


async def test_a_deletion_does_not_take_a_creation_of_unknown_outcome_for_none(
    open_store: OpenStore,
) -> None:
    """Regression: a store that was replaced had deleted nothing, and reported success."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    hold = engine.hold_next("commit")
    ml = store.create_managed_ledger_nowait("orders", lost=lambda error: None)
    assert ml is not None
    adding = asyncio.ensure_future(ml.add_entry(b"0"))
    await hold.reached()
    deleting = asyncio.ensure_future(store.delete_managed_ledger("orders"))
    while ml.state is not LedgerState.FENCED_FOR_DELETION:  # noqa: ASYNC110 - ticks, no time
        await asyncio.sleep(0)
    await open_store(engine=engine)
    hold.release()
    outcomes = await asyncio.gather(adding, deleting, return_exceptions=True)
    assert [Fenced, Fenced] == [type(each) for each in outcomes]


async def test_a_creation_that_was_not_written_is_none(open_store: OpenStore) -> None:
    """`lost` is called first, then the appends fail, and the name is free again."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    results: list[object] = []
    ml = store.create_managed_ledger_nowait("orders", lost=results.append)
    assert ml is not None
    ml.append_nowait(b"0", 1, 1, lambda position, error: results.append(position))
    engine.fail_next("commit")
    await store.flush()
    assert ([StorageFailed, Position], LedgerState.FENCED) == (
        [type(each) for each in results],
        ml.state,
    )
    with pytest.raises(Fenced):
        ml.append_nowait(b"1", 1, 1, lambda position, error: None)
    assert not store.has_managed_ledger("orders")
    again = store.create_managed_ledger_nowait("orders", lost=not_lost)
    assert again is not None
    await again.add_entry(b"2")
    assert [b"2"] == await all_of(again)


async def test_a_read_that_meets_a_deletion_is_no_storage_fault(open_store: OpenStore) -> None:
    """Found by the simulator: /health showed corrupt data after a topic was deleted."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine, config=COLD)
    ml = await store.open_managed_ledger("orders")
    position = await ml.add_entry(b"0")
    read, commit = engine.hold_next("read"), engine.hold_next("commit")
    reading = asyncio.ensure_future(ml.read_entry(position))
    await read.reached()
    deleting = asyncio.ensure_future(store.delete_managed_ledger("orders"))
    await commit.reached()
    read.fail(EntryMissing(*position))
    with pytest.raises(Fenced, match="orders is fenced"):
        await reading
    commit.release()
    await deleting
    assert [] == store.health.faults()
