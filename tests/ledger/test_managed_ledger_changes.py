"""The handle: deletion, termination, properties and ownership."""

import asyncio

import pytest

from kledger.ledger import (
    EARLIEST,
    AlreadyClosed,
    Fenced,
    InvalidArgument,
    LedgerError,
    LedgerState,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    NonRecoverable,
    Position,
    StoreConfig,
    Terminated,
)
from kledger.ledger.testing import FaultyEngine, ManualClock
from tests.ledger.words import OpenStore, add_all, append, datas, numbers, settled

# Deletion


async def test_retention_by_time_is_strict(store: LedgerStore, clock: ManualClock) -> None:
    config = ManagedLedgerConfig(max_entries_per_ledger=2, retention_ms=1000)
    ml = await store.open_managed_ledger("time", config=config)
    await add_all(ml, numbers(0, 4))
    clock.advance(1000)
    await ml.trim()
    assert 3 == len(ml.ledgers)
    clock.advance(1)
    await ml.trim()
    assert [b"4"] == datas(await ml.read_entries(EARLIEST, 9))


async def test_a_rollover_trims(store: LedgerStore, clock: ManualClock) -> None:
    config = ManagedLedgerConfig(max_entries_per_ledger=2, retention_bytes=20)
    ml = await store.open_managed_ledger("size", config=config)
    await add_all(ml, [bytes(10)] * 9)
    await settled(clock)
    await store.flush()
    assert [2, 1] == [info.entries for info in ml.ledgers]
    assert 30 == ml.total_size


async def test_truncate_leaves_the_last_ledger_and_lac(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 7))
    await ml.truncate()
    assert [0] == [info.entries for info in ml.ledgers]
    assert (positions[-1], Position(positions[-1].ledger_id, -1)) == (
        ml.last_confirmed_entry,
        ml.first_position,
    )
    assert [] == await ml.read_entries(EARLIEST, 9)
    assert -1 == engine.last_entry(positions[0].ledger_id), "the data is deleted, too"
    await ml.add_entry(b"8")
    assert [b"8"] == datas(await ml.read_entries(EARLIEST, 9))


async def test_trim_before_deletes_whole_ledgers(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 9))
    await ml.trim_before(positions[6])
    assert numbers(4, 9) == datas(await ml.read_entries(EARLIEST, 99))


async def test_listeners_are_called_after_a_trim(ml: ManagedLedger) -> None:
    await add_all(ml, numbers(0, 7))
    results: list[Position] = []
    ml.add_listener(lambda: results.append(ml.first_position))
    await ml.truncate()
    assert ml.first_position in results


async def test_trims_run_one_at_a_time(ml: ManagedLedger) -> None:
    await add_all(ml, numbers(0, 9))
    await asyncio.gather(ml.truncate(), ml.truncate(), ml.trim(), ml.roll_over(), ml.truncate())
    await ml.truncate()
    assert 1 == len(ml.ledgers)


async def test_a_trim_after_one_that_was_cancelled(ml: ManagedLedger, engine: FaultyEngine) -> None:
    """It selected the same ledgers once more, and its caller waited for ever."""
    await add_all(ml, numbers(0, 9))
    hold = engine.hold_next("commit")
    cancelled = asyncio.ensure_future(ml.truncate())
    await hold.reached()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    second = asyncio.ensure_future(ml.truncate())
    await asyncio.sleep(0)
    hold.release()
    await asyncio.wait_for(second, 60)
    assert numbers(8, 9) == datas(await ml.read_entries(EARLIEST, 99))


async def test_a_trim_beside_a_rollover_under_way(ml: ManagedLedger, engine: FaultyEngine) -> None:
    await add_all(ml, numbers(0, 5))
    hold = engine.hold_next("commit")
    adding = asyncio.ensure_future(add_all(ml, numbers(6, 9)))
    await hold.reached()
    trimming = asyncio.ensure_future(ml.truncate())
    await asyncio.sleep(0)
    hold.release()
    await asyncio.gather(adding, trimming)
    assert numbers(4, 9) == datas(await ml.read_entries(EARLIEST, 99))


# The end


async def test_terminate_is_final_and_keeps_what_was_appended(
    store: LedgerStore, ml: ManagedLedger
) -> None:
    results: list[Position] = []
    positions = [append(ml, data, lambda p, error: results.append(p)) for data in numbers(0, 4)]
    end = await ml.terminate()
    assert (positions[-1], positions, LedgerState.TERMINATED) == (end, results, ml.state)
    for call in (ml.add_entry(b"x"), ml.roll_over()):
        with pytest.raises(Terminated):
            await call
    with pytest.raises(Terminated):
        append(ml, b"x")
    assert end == await ml.terminate()
    again = await store.open_managed_ledger("orders")
    assert (LedgerState.TERMINATED, end, end) == (
        again.state,
        again.last_confirmed_entry,
        await again.terminate(),
    )
    assert numbers(0, 4) == datas(await again.read_entries(EARLIEST, 99))
    await again.set_property("still", "described")
    await again.truncate()
    assert [b"4"] == datas(await again.read_entries(EARLIEST, 99))


async def test_appends_are_refused_from_the_call_of_terminate_on(ml: ManagedLedger) -> None:
    await ml.add_entry(b"x")
    ending = asyncio.ensure_future(ml.terminate())
    await asyncio.sleep(0)
    with pytest.raises(Terminated):
        append(ml, b"late")
    second = asyncio.ensure_future(ml.terminate())
    assert await ending == await second


async def test_terminate_without_entries(store: LedgerStore, ml: ManagedLedger) -> None:
    end = await ml.terminate()
    assert (-1, ()) == (end.entry_id, ml.ledgers)
    assert [] == await ml.read_entries(EARLIEST, 9)
    again = await store.open_managed_ledger("orders")
    assert (end, ()) == (again.last_confirmed_entry, again.ledgers)


async def test_terminate_after_a_full_ledger(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 3))
    assert positions[-1] == await ml.terminate()
    assert [4] == [info.entries for info in ml.ledgers]


async def test_listeners_are_called_after_a_termination(ml: ManagedLedger) -> None:
    states: list[LedgerState] = []
    ml.add_listener(lambda: states.append(ml.state))
    await ml.terminate()
    await ml.close()
    assert [LedgerState.TERMINATED, LedgerState.CLOSED] == states


# Properties


async def test_properties_are_durable_and_can_be_deleted(
    store: LedgerStore, ml: ManagedLedger
) -> None:
    await ml.set_property("a", "1")
    await asyncio.gather(ml.set_property("b", "2"), ml.roll_over(), ml.set_property("c", "3"))
    await ml.set_property("a", None)
    await ml.set_property("never", None)
    assert {"b": "2", "c": "3"} == ml.properties
    again = await store.open_managed_ledger("orders")
    assert {"b": "2", "c": "3"} == again.properties
    with pytest.raises(InvalidArgument):
        await again.set_property("d", 4)  # type: ignore[arg-type]


async def test_a_rollover_between_two_properties_loses_none(ml: ManagedLedger) -> None:
    setting = asyncio.ensure_future(ml.set_property("a", "1"))
    await asyncio.sleep(0)
    await add_all(ml, numbers(0, 3))
    await setting
    assert {"a": "1"} == ml.properties


# Ownership


async def test_close_waits_for_what_was_appended(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    results: list[LedgerError | None] = []
    hold = engine.hold_next("commit")
    append(ml, b"x", lambda position, error: results.append(error))
    closing = asyncio.ensure_future(ml.close())
    await hold.reached()
    with pytest.raises(AlreadyClosed):
        append(ml, b"y")
    hold.release()
    await closing
    assert [None] == results
    await ml.close()
    for call in (ml.add_entry(b"y"), ml.trim(), ml.terminate(), ml.set_property("a", "b")):
        with pytest.raises(AlreadyClosed):
            await call
    again = await store.open_managed_ledger("orders")
    assert [b"x"] == datas(await again.read_entries(EARLIEST, 9))


async def test_a_clean_close_saves_counting(open_store: OpenStore, engine: FaultyEngine) -> None:
    store = await open_store(engine=engine, config=StoreConfig(cache_bytes=0))
    ml = await store.open_managed_ledger("orders")
    await add_all(ml, numbers(0, 9))
    await ml.close()
    await store.open_managed_ledger("orders")
    assert 0 == engine.calls["read"]


async def test_a_newer_handle_fences_an_older_one(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    """What the older one acknowledged is visible to the newer one; it cannot append any more."""
    acknowledged: list[Position] = []
    append(ml, b"0", lambda position, error: acknowledged.append(position))
    hold = engine.hold_next("commit")
    append(ml, b"1", lambda position, error: acknowledged.append(position))
    opening = asyncio.ensure_future(store.open_managed_ledger("orders"))
    await hold.reached()
    with pytest.raises(Fenced):
        append(ml, b"late")
    assert LedgerState.FENCED is ml.state
    hold.release()
    newer = await opening
    entries = await newer.read_entries(EARLIEST, 9)
    assert acknowledged == [entry.position for entry in entries]
    changes = (ml.terminate(), ml.truncate(), ml.set_property("a", "b"), ml.roll_over())
    for change in changes:
        with pytest.raises(Fenced):
            await change
    await ml.close()
    await newer.add_entry(b"2")
    assert numbers(0, 2) == datas(await newer.read_entries(EARLIEST, 9))


async def test_an_owner_with_a_stale_version_fences_itself(
    store: LedgerStore, ml: ManagedLedger
) -> None:
    """Compare-and-set: a handle without the newest version is fenced by its next change."""
    ml._services.versions.reset("orders", 99)
    with pytest.raises(Fenced, match="not the newest"):
        await ml.set_property("a", "b")
    assert LedgerState.FENCED is ml.state
    with pytest.raises(Fenced):
        await ml.add_entry(b"x")


async def test_reading_what_was_lost_is_an_error(
    open_store: OpenStore, engine: FaultyEngine
) -> None:
    """An empty answer for a range that must have entries ends a read; it never spins (#24515)."""
    store = await open_store(engine=engine, config=StoreConfig(cache_bytes=0))
    ml = await store.open_managed_ledger("orders")
    position = await ml.add_entry(b"x")
    store._committer.submit_rows([], lambda error: None, [position.ledger_id])
    await store.flush()
    with pytest.raises(NonRecoverable):
        await ml.read_entries(EARLIEST, 1)
