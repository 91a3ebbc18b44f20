"""The store: opening and closing, names, rows, recovery, and what stops it."""

import asyncio
import errno
import sys
import threading
from pathlib import Path

import pytest

from kledger.ledger import (
    EARLIEST,
    AlreadyClosed,
    Corrupt,
    Deleted,
    Fenced,
    InvalidArgument,
    LedgerError,
    LedgerState,
    LedgerStore,
    StorageFailed,
    StoreConfig,
    StoreInUse,
)
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.metadata.keys import ID_COUNTER
from kledger.ledger.testing import FaultyEngine, ManualClock
from tests.ledger.words import SMALL, OpenStore, add_all, all_of, numbers

# Opening and closing


async def test_a_store_is_entered_or_awaited() -> None:
    async with LedgerStore.open(None) as store:
        assert [] == store.managed_ledger_names()
    store = await LedgerStore.open(None)
    await store.close()
    await store.close()


async def test_a_closed_store_refuses_everything(open_store: OpenStore) -> None:
    store = await open_store()
    ml = await store.open_managed_ledger("orders")
    await store.close()
    for call in (
        store.open_managed_ledger("orders"),
        store.delete_managed_ledger("orders"),
        store.put_rows([(b"k", b"v")]),
        store.checkpoint(),
        ml.add_entry(b"x"),
    ):
        with pytest.raises(AlreadyClosed):
            await call
    for plain in (
        lambda: store.get_row(b"k"),
        lambda: store.scan_rows(b""),
        lambda: store.scan_rows_between(b"", b"a"),
        lambda: store.append_rows_nowait([], lambda error: None),
    ):
        with pytest.raises(AlreadyClosed):
            plain()
    with pytest.raises(InvalidArgument):
        await store


async def test_a_closed_store_keeps_no_entries_in_memory(tmp_path: Path) -> None:
    store = await LedgerStore.open(tmp_path)
    handle = await store.open_managed_ledger("m")
    entry = bytes(100)
    references = sys.getrefcount(entry)
    await handle.add_entry(entry)
    assert sys.getrefcount(entry) > references
    await store.close()
    assert references == sys.getrefcount(entry)


async def test_a_store_that_was_never_opened_can_be_closed() -> None:
    store = LedgerStore.open(None)
    with pytest.raises(AlreadyClosed):
        store.get_row(b"k")
    await store.close()


async def test_an_engine_that_was_given_stays_open(open_store: OpenStore) -> None:
    engine = MemoryEngine()
    store = await open_store(engine=engine)
    await store.put_rows([(b"k", b"v")])
    await store.close()
    again = await open_store(engine=engine)
    assert b"v" == again.get_row(b"k")


async def test_close_finishes_what_was_submitted(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders")
    results: list[LedgerError | None] = []
    hold = engine.hold_next("commit")
    ml.append_nowait(b"x", 1, 1, lambda position, error: results.append(error))
    closing = asyncio.ensure_future(store.close())
    await hold.reached()
    hold.release()
    await closing
    assert [None] == results


# Names


async def test_names_are_remembered(open_store: OpenStore) -> None:
    engine = MemoryEngine()
    store = await open_store(engine=engine)
    for name in ("b", "a", "ünïcode/orders-3"):
        await store.open_managed_ledger(name)
    await store.delete_managed_ledger("b")
    assert ["a", "ünïcode/orders-3"] == store.managed_ledger_names()
    await store.close()
    assert ["a", "ünïcode/orders-3"] == (await open_store(engine=engine)).managed_ledger_names()


@pytest.mark.parametrize("name", ["", None])
async def test_a_managed_ledger_needs_a_name(open_store: OpenStore, name: str) -> None:
    store = await open_store()
    with pytest.raises(InvalidArgument):
        await store.open_managed_ledger(name)
    with pytest.raises(InvalidArgument):
        await store.delete_managed_ledger(name)


async def test_managed_ledgers_do_not_mix(open_store: OpenStore) -> None:
    store = await open_store()
    many = await asyncio.gather(*(store.open_managed_ledger(f"ml-{n}") for n in range(50)))
    for _ in range(3):
        await asyncio.gather(*(ml.add_entry(ml.name.encode()) for ml in many))
    for ml in many:
        assert [ml.name.encode()] * 3 == await all_of(ml)
    ids = [info.ledger_id for ml in many for info in ml.ledgers]
    assert len(ids) == len(set(ids))


async def test_delete_takes_everything_and_old_handles_are_closed(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders", config=SMALL)
    await add_all(ml, numbers(0, 9))
    await ml.set_property("a", "b")
    await store.delete_managed_ledger("orders")
    assert (LedgerState.CLOSED, []) == (ml.state, store.managed_ledger_names())
    for call in (ml.add_entry(b"x"), ml.read_entries(EARLIEST, 1), ml.trim(), ml.terminate()):
        with pytest.raises(AlreadyClosed) as caught:
            await call
        assert isinstance(caught.value, Deleted)
    assert {-1} == {engine.last_entry(info.ledger_id) for info in ml.ledgers}
    assert [ID_COUNTER] == [key for key, _ in engine.scan(b"", b"\xff")]
    assert 0 == store.cached_bytes
    await store.delete_managed_ledger("orders")
    again = await store.open_managed_ledger("orders")
    assert ([], {}) == (await all_of(again), again.properties)
    assert again.ledgers[0].ledger_id > ml.ledgers[-1].ledger_id, "ids are never used again"


async def test_a_deletion_that_was_not_written_changes_nothing(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders")
    await ml.add_entry(b"0")
    hold = engine.hold_next("commit")
    deleting = asyncio.ensure_future(store.delete_managed_ledger("orders"))
    await hold.reached()
    with pytest.raises(Fenced):
        await ml.add_entry(b"x")
    hold.fail()
    with pytest.raises(StorageFailed):
        await deleting
    await ml.add_entry(b"1")
    assert numbers(0, 1) == await all_of(ml)
    assert ["orders"] == store.managed_ledger_names()


async def test_deleting_a_managed_ledger_that_was_not_opened(open_store: OpenStore) -> None:
    engine = MemoryEngine()
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders")
    await ml.add_entry(b"x")
    await store.close()
    store = await open_store(engine=engine)
    await store.delete_managed_ledger("orders")
    assert [] == store.managed_ledger_names()


# Rows


async def test_rows_are_put_deleted_and_scanned(open_store: OpenStore) -> None:
    store = await open_store()
    await store.put_rows([(b"a1", b"1"), (b"a2", b"2"), (b"b1", b"3"), (b"", b"4")])
    await store.put_rows([(b"a1", None), (b"a3", b""), (b"never", None)])
    assert [(b"a2", b"2"), (b"a3", b"")] == store.scan_rows(b"a")
    assert [b"", b"a2", b"a3", b"b1"] == [key for key, _ in store.scan_rows()]
    assert (None, b"", b"4") == (store.get_row(b"a1"), store.get_row(b"a3"), store.get_row(b""))
    between = store.scan_rows_between(b"a", b"b1")
    assert [(b"a2", b"2"), (b"a3", b"")] == between
    assert between[::-1] == store.scan_rows_between(b"a", b"b1", reverse=True)
    assert between[:1] == store.scan_rows_between(b"a", b"z", limit=1)
    assert between[1:] == store.scan_rows_between(b"", b"b1", reverse=True, limit=1)


async def test_rows_and_entries_share_one_order(open_store: OpenStore) -> None:
    store = await open_store()
    ml = await store.open_managed_ledger("orders")
    order: list[str] = []
    store.append_rows_nowait([(b"k", b"1")], lambda error: order.append("first row"))
    ml.append_nowait(b"x", 1, 1, lambda position, error: order.append("entry"))
    store.append_rows_nowait([(b"k", b"2")], lambda error: order.append("second row"))
    await store.flush()
    assert ["first row", "entry", "second row"] == order
    assert b"2" == store.get_row(b"k")


async def test_rows_that_were_not_written_fail_only_their_callers(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await store.put_rows([(b"k", b"1")])
    await store.put_rows([(b"k", b"2")])
    assert b"2" == store.get_row(b"k")


# Recovery


async def test_reopening_without_writing_leaves_one_ledger(open_store: OpenStore) -> None:
    engine = MemoryEngine()
    for _ in range(5):
        store = await open_store(engine=engine)
        ml = await store.open_managed_ledger("orders")
        assert 1 == len(ml.ledgers)
        await store.close()
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders")
    await ml.add_entry(b"x")
    for _ in range(3):
        ml = await store.open_managed_ledger("orders")
    assert [1, 0] == [info.entries for info in ml.ledgers]


@pytest.mark.parametrize("count", [1, 3, 255, 256, 257, 700])
async def test_acknowledged_entries_survive_a_crash(open_store: OpenStore, count: int) -> None:
    """The last ledger was not closed, so its entries are counted."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine, config=StoreConfig(cache_bytes=0))
    ml = await store.open_managed_ledger("orders")
    await add_all(ml, numbers(1, count))
    engine.drop_unsynced()
    store = await open_store(engine=engine)
    again = await store.open_managed_ledger("orders")
    size = sum(len(data) for data in numbers(1, count))
    assert numbers(1, count) == await all_of(again)
    assert (size, ml.last_confirmed_entry) == (again.total_size, again.last_confirmed_entry)
    await again.add_entry(b"more")
    assert [*numbers(1, count), b"more"] == await all_of(again)


async def test_reopening_reads_from_memory_what_memory_has(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders")
    await add_all(ml, numbers(0, 9))
    await ml.close()
    again = await store.open_managed_ledger("orders")
    assert numbers(0, 9) == await all_of(again)
    assert 0 == engine.calls["read"]


async def test_a_damaged_managed_ledger_cannot_be_opened_but_others_can(
    open_store: OpenStore,
) -> None:
    engine = MemoryEngine()
    group = CommitGroup(rows=[(b"m\x01broken", b"\x07"), (b"m\x01also", b"")])
    engine.commit(group, sync=True)
    engine.index(group)
    store = await open_store(engine=engine)
    with pytest.raises(Corrupt):
        await store.open_managed_ledger("broken")
    await (await store.open_managed_ledger("orders")).add_entry(b"x")


async def test_a_damaged_counter_fails_the_start(open_store: OpenStore) -> None:
    engine = MemoryEngine()
    group = CommitGroup(rows=[(ID_COUNTER, b"?")])
    engine.commit(group, sync=True)
    engine.index(group)
    with pytest.raises(Corrupt):
        await open_store(engine=engine)


async def test_an_opening_that_was_not_written_can_be_repeated(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    for _ in range(2):
        engine.fail_next("commit")
        with pytest.raises(StorageFailed):
            await store.open_managed_ledger("orders")
        assert [] == store.managed_ledger_names()
    ml = await store.open_managed_ledger("orders")
    await ml.add_entry(b"x")
    assert 1 == len(ml.ledgers)


# Ownership


async def test_of_many_openers_the_last_one_owns_it(open_store: OpenStore) -> None:
    store = await open_store()
    handles = await asyncio.gather(*(store.open_managed_ledger("orders") for _ in range(5)))
    owners = [handle for handle in handles if handle.state is LedgerState.LEDGER_OPENED]
    assert 1 == len(owners)
    await owners[0].add_entry(b"x")
    for handle in handles:
        if handle is not owners[0]:
            with pytest.raises(Fenced):
                await handle.add_entry(b"y")
    assert [b"x"] == await all_of(owners[0])


async def test_two_handles_that_fence_each_other_lose_nothing(open_store: OpenStore) -> None:
    store = await open_store()
    acknowledged: list[bytes] = []

    async def write(writer: int) -> None:
        for round_ in range(10):
            ml = await store.open_managed_ledger("orders", config=SMALL)
            for number in range(5):
                data = b"%d-%d-%d" % (writer, round_, number)
                try:
                    await ml.add_entry(data)
                except Fenced:
                    break
                acknowledged.append(data)

    await asyncio.gather(*(write(writer) for writer in range(3)))
    found = await all_of(await store.open_managed_ledger("orders"))
    assert sorted(acknowledged) == sorted(data for data in found if data in set(acknowledged))
    assert len(found) == len(set(found))


async def test_an_engine_given_to_another_store_fences_the_first(open_store: OpenStore) -> None:
    engine = MemoryEngine()
    first = await open_store(engine=engine)
    ml = await first.open_managed_ledger("orders")
    await ml.add_entry(b"0")
    second = await open_store(engine=engine)
    assert first.is_fenced
    for call in (ml.add_entry(b"x"), ml.read_entries(EARLIEST, 1), first.put_rows([])):
        with pytest.raises(Fenced):
            await call
    newer = await second.open_managed_ledger("orders")
    await newer.add_entry(b"1")
    await first.close()
    assert numbers(0, 1) == await all_of(newer)


async def test_a_failed_sync_stops_the_store_and_calls_on_fatal(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders")
    fatal: list[LedgerError] = []
    store.on_fatal = fatal.append
    engine.fail_next("sync")
    with pytest.raises(Fenced):
        await ml.add_entry(b"x")
    assert (True, 1) == (store.is_fenced, len(fatal))
    syncs = engine.calls["sync"]
    for call in (store.open_managed_ledger("other"), store.put_rows([(b"k", b"v")])):
        with pytest.raises(Fenced):
            await call
    await store.close()
    assert syncs == engine.calls["sync"], "a sync is never tried again"


# The usual engine


@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_a_folder_keeps_everything(tmp_path: Path, durability: str) -> None:
    config = StoreConfig(durability=durability)  # type: ignore[arg-type]
    async with LedgerStore.open(tmp_path / "data", config=config) as store:
        ml = await store.open_managed_ledger("orders", config=SMALL)
        await add_all(ml, numbers(0, 9))
        await ml.truncate()
        await store.put_rows([(b"k", b"v")])
    async with LedgerStore.open(str(tmp_path / "data"), config=config) as store:
        ml = await store.open_managed_ledger("orders")
        assert (numbers(8, 9), b"v") == (await all_of(ml), store.get_row(b"k"))


async def test_a_folder_is_open_once(tmp_path: Path) -> None:
    async with LedgerStore.open(tmp_path) as store:
        with pytest.raises(StoreInUse):
            await LedgerStore.open(tmp_path)
        await store.put_rows([(b"k", b"v")])


async def test_drained_is_called_through_the_store(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine, config=StoreConfig(committer_queue_count_max=2))
    ml = await store.open_managed_ledger("orders")
    hold = engine.hold_next("commit")
    for _ in range(3):
        ml.append_nowait(b"x", 1, 1, lambda position, error: None)
    assert store.is_saturated
    drained: list[bool] = []
    store.on_drained(lambda: drained.append(store.is_saturated))
    await hold.reached()
    hold.release()
    await store.flush()
    assert [False] == drained


async def test_a_checkpoint_makes_what_was_written_durable(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine, config=StoreConfig(durability="os"))
    await store.put_rows([(b"k", b"v")])
    await store.checkpoint()
    engine.drop_unsynced()
    again = await open_store(engine=engine)
    assert b"v" == again.get_row(b"k")


async def test_blocking_calls_are_made_in_a_thread(open_store: OpenStore) -> None:
    store = await open_store()
    assert threading.main_thread() is not await store.run_blocking(threading.current_thread)
    assert 8 == await store.run_blocking(pow, 2, 3)
    await store.close()
    with pytest.raises(AlreadyClosed):
        await store.run_blocking(pow, 2, 3)


async def test_a_full_disk_does_not_fill_the_log_of_the_server(
    open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    for _ in range(20):
        engine.fail_next("commit", OSError(errno.ENOSPC, "no space"))
        with pytest.raises(StorageFailed):
            await store.put_rows([(b"k", b"v")])
    assert 1 == sum("storage fault disk_full" in each.message for each in caplog.records)


async def test_bytes_of_rows_count_as_unconfirmed(open_store: OpenStore) -> None:
    """Topic and group metadata fill the queue as entries do; so do the rows of an entry."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine, config=StoreConfig(committer_queue_bytes_max=100))
    ml = await store.open_managed_ledger("orders")
    hold = engine.hold_next("commit")
    store.append_rows_nowait([(b"k", b"v" * 60), (b"deleted", None)], lambda error: None)
    assert not store.is_saturated
    ml.append_nowait(b"x", 1, 1, lambda position, error: None, [(b"k", b"v" * 60)])
    assert store.is_saturated
    await hold.reached()
    assert store.is_saturated
    hold.release()
    await store.flush()
    assert not store.is_saturated


async def test_time_comes_from_the_clock_that_was_given(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = await open_store()
    ml = await store.open_managed_ledger("orders")
    await ml.add_entry(b"x")
    clock.advance(234)
    await ml.roll_over()
    assert 1_000_234 == ml.ledgers[0].closed_ms
    assert 1_000_000 == ml.ledgers[0].max_timestamp_ms
