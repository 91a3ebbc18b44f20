"""Reads that wait, reads that come too late, and reads that fail."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kledger.ledger import (
    EARLIEST,
    AlreadyClosed,
    ConcurrentWait,
    Cursor,
    Deleted,
    Fenced,
    LedgerStore,
    ManagedLedger,
    NoMoreEntries,
    Position,
    StorageFailed,
    StoreConfig,
)
from kledger.ledger.testing import FaultyEngine
from tests.ledger.words import SMALL, OpenStore, add_all, datas, numbers

Act = Callable[[LedgerStore, ManagedLedger, Cursor], Awaitable[object]]


async def ticks(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def uncached(open_store: OpenStore, engine: FaultyEngine) -> ManagedLedger:
    """Six entries, none of them in memory."""
    store = await open_store(engine=engine, config=StoreConfig(cache_bytes=0))
    ml = await store.open_managed_ledger("orders", config=SMALL)
    await add_all(ml, numbers(0, 5))
    return ml


async def test_a_waiting_read_gets_what_comes(ml: ManagedLedger) -> None:
    cursor = await ml.open_cursor("c")
    waiting = asyncio.ensure_future(cursor.read_or_wait(5))
    await ticks()
    assert not waiting.done()
    await add_all(ml, numbers(0, 2))
    assert numbers(0, 2) == datas(await waiting)
    await ml.add_entry(b"3")
    assert [b"3"] == datas(await cursor.read_or_wait(5))


@pytest.mark.parametrize("tick_count", range(8))
async def test_no_wake_up_is_lost_whenever_an_entry_is_appended(
    ml: ManagedLedger, tick_count: int
) -> None:
    """The entry is confirmed in every tick around that in which the read begins to wait."""
    cursor = await ml.open_cursor("c")
    adding = asyncio.ensure_future(ml.add_entry(b"0"))
    await ticks(tick_count)
    waiting = asyncio.ensure_future(cursor.read_or_wait(1))
    await adding
    assert [b"0"] == datas(await asyncio.wait_for(waiting, 60))


async def test_one_read_waits_and_can_be_cancelled(ml: ManagedLedger) -> None:
    cursor = await ml.open_cursor("c")
    assert not cursor.cancel_pending_read()
    waiting = asyncio.ensure_future(cursor.read_or_wait(1))
    await ticks()
    with pytest.raises(ConcurrentWait):
        await cursor.read_or_wait(1)
    assert cursor.cancel_pending_read()
    assert not cursor.cancel_pending_read()
    assert [] == await waiting
    again = asyncio.ensure_future(cursor.read_or_wait(1))
    await ticks()
    await ml.add_entry(b"0")
    assert [b"0"] == datas(await again)


async def test_a_wait_that_was_cancelled_by_its_task_leaves_nothing(ml: ManagedLedger) -> None:
    cursor = await ml.open_cursor("c")
    waiting = asyncio.ensure_future(cursor.read_or_wait(1))
    await ticks()
    waiting.cancel()
    await ticks()
    assert not cursor.cancel_pending_read()
    await ml.add_entry(b"0")
    assert [b"0"] == datas(await cursor.read(1))


async def test_a_second_read_that_is_refused_does_not_deafen_the_first(ml: ManagedLedger) -> None:
    cursor = await ml.open_cursor("c")
    waiting = asyncio.ensure_future(cursor.read_or_wait(1))
    await ticks()
    with pytest.raises(ConcurrentWait):
        await cursor.read_or_wait(1)
    await ml.add_entry(b"0")
    assert [b"0"] == datas(await asyncio.wait_for(waiting, 60))


async def test_a_wait_skips_acknowledged_entries(ml: ManagedLedger) -> None:
    cursor = await ml.open_cursor("c")
    waiting = asyncio.ensure_future(cursor.read_or_wait(1))
    await ticks()

    def acknowledge(position: Position, error: Exception | None) -> None:
        cursor.state.delete([position])

    ml.append_nowait(b"0", 1, 0, acknowledge)
    await ticks()
    await ml.add_entry(b"1")
    assert [b"1"] == datas(await waiting)


async def test_a_wait_continues_from_the_position_of_a_reset(ml: ManagedLedger) -> None:
    await add_all(ml, numbers(0, 3))
    cursor = await ml.open_cursor("c")
    waiting = asyncio.ensure_future(cursor.read_or_wait(9))
    await ticks()
    await cursor.reset(EARLIEST)
    assert numbers(0, 3) == datas(await waiting)


async def test_a_wait_outlives_a_revision_that_moves_nothing(ml: ManagedLedger) -> None:
    cursor = await ml.open_cursor("c")
    waiting = asyncio.ensure_future(cursor.read_or_wait(9))
    await ticks()
    cursor.revision.start()
    await ml.add_entry(b"0")
    await ticks()
    assert not waiting.done()
    cursor.revision.end(lambda state: None)
    assert [b"0"] == datas(await waiting)


async def close_cursor(store: LedgerStore, ml: ManagedLedger, cursor: Cursor) -> None:
    await cursor.close()


async def delete_cursor(store: LedgerStore, ml: ManagedLedger, cursor: Cursor) -> None:
    await ml.delete_cursor("c")


async def close_ledger(store: LedgerStore, ml: ManagedLedger, cursor: Cursor) -> None:
    await ml.close()


async def delete_ledger(store: LedgerStore, ml: ManagedLedger, cursor: Cursor) -> None:
    await store.delete_managed_ledger("orders")


async def take_over(store: LedgerStore, ml: ManagedLedger, cursor: Cursor) -> None:
    await store.open_managed_ledger("orders")


async def terminate(store: LedgerStore, ml: ManagedLedger, cursor: Cursor) -> None:
    await ml.terminate()


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (close_cursor, AlreadyClosed),
        (delete_cursor, AlreadyClosed),
        (close_ledger, AlreadyClosed),
        (delete_ledger, Deleted),
        (take_over, Fenced),
        (terminate, NoMoreEntries),
    ],
)
async def test_a_waiting_read_ends_when_nothing_more_can_come(
    store: LedgerStore, ml: ManagedLedger, act: Act, error: type[Exception]
) -> None:
    cursor = await ml.open_cursor("c")
    waiting = asyncio.ensure_future(cursor.read_or_wait(1))
    await ticks()
    await act(store, ml, cursor)
    with pytest.raises(error):
        await asyncio.wait_for(waiting, 60)
    with pytest.raises(error):
        await cursor.read_or_wait(1)


async def test_a_terminated_ledger_is_read_to_its_end(ml: ManagedLedger) -> None:
    cursor = await ml.open_cursor("c")
    await add_all(ml, numbers(0, 1))
    await ml.terminate()
    assert numbers(0, 1) == datas(await cursor.read_or_wait(5))
    with pytest.raises(NoMoreEntries):
        await cursor.read_or_wait(5)
    await cursor.clear_backlog()
    assert 0 == cursor.backlog


async def test_a_read_overtaken_by_a_reset_returns_nothing_and_moves_nothing(
    uncached: ManagedLedger, engine: FaultyEngine
) -> None:
    cursor = await uncached.open_cursor("c", initial=EARLIEST)
    await cursor.read(2)
    hold = engine.hold_next("read")
    reading = asyncio.ensure_future(cursor.read(2))
    await hold.reached()
    await cursor.reset(EARLIEST)
    hold.release()
    assert [] == await reading
    assert numbers(0, 5) == datas(await cursor.read(9))


async def test_the_failure_of_a_read_that_a_reset_overtakes_does_not_count(
    uncached: ManagedLedger, engine: FaultyEngine
) -> None:
    cursor = await uncached.open_cursor("c", initial=EARLIEST)
    hold = engine.hold_next("read")
    reading = asyncio.ensure_future(cursor.read(2))
    await hold.reached()
    await cursor.rewind()
    hold.fail()
    assert [] == await reading
    hold = engine.hold_next("read")
    replaying = asyncio.ensure_future(cursor.replay([cursor.read_position]))
    await hold.reached()
    await cursor.rewind()
    hold.fail()
    assert ([], set()) == await replaying


async def test_a_replay_overtaken_by_a_reset_returns_nothing(
    uncached: ManagedLedger, engine: FaultyEngine
) -> None:
    cursor = await uncached.open_cursor("c", initial=EARLIEST)
    positions = [entry.position for entry in await cursor.read(3)]
    hold = engine.hold_next("read")
    replaying = asyncio.ensure_future(cursor.replay(positions))
    await hold.reached()
    await cursor.rewind()
    hold.release()
    assert ([], set()) == await replaying


async def test_a_wait_whose_read_is_overtaken_continues(
    uncached: ManagedLedger, engine: FaultyEngine
) -> None:
    cursor = await uncached.open_cursor("c", initial=EARLIEST)
    await cursor.read(4)
    hold = engine.hold_next("read")
    waiting = asyncio.ensure_future(cursor.read_or_wait(9))
    await hold.reached()
    await cursor.reset(EARLIEST)
    hold.release()
    assert numbers(0, 5) == datas(await waiting)


async def test_a_failed_read_moves_nothing_and_one_failure_fails_a_replay(
    uncached: ManagedLedger, engine: FaultyEngine
) -> None:
    cursor = await uncached.open_cursor("c", initial=EARLIEST)
    engine.fail_next("read")
    with pytest.raises(StorageFailed):
        await cursor.read(2)
    entries = await cursor.read(6)
    assert numbers(0, 5) == datas(entries)
    engine.delay_next("read", 0)
    engine.fail_next("read")
    with pytest.raises(StorageFailed):
        await cursor.replay([entries[0].position, entries[5].position])


async def test_what_is_acknowledged_during_a_read_is_left_out_of_it(
    uncached: ManagedLedger, engine: FaultyEngine
) -> None:
    cursor = await uncached.open_cursor("c", initial=EARLIEST)
    positions = [entry.position for entry in await cursor.read(4)]
    await cursor.rewind()
    hold = engine.hold_next("read")
    reading = asyncio.ensure_future(cursor.read(4))
    await hold.reached()
    await cursor.mark_delete(positions[0])
    await cursor.delete(positions[2])
    hold.release()
    assert [b"1", b"3", b"4"] == datas(await reading)
    hold = engine.hold_next("read")
    replaying = asyncio.ensure_future(cursor.replay([positions[1], positions[3]]))
    await hold.reached()
    await cursor.delete(positions[3])
    hold.release()
    entries, acknowledged = await replaying
    assert ([b"1"], {positions[3]}) == (datas(entries), acknowledged)


async def test_ledgers_that_are_acknowledged_as_a_whole_are_not_opened(
    uncached: ManagedLedger, engine: FaultyEngine
) -> None:
    cursor = await uncached.open_cursor("c", initial=EARLIEST)
    ledger = uncached.ledgers[0].ledger_id
    await cursor.delete([Position(ledger, entry_id) for entry_id in range(4)][1:])
    await cursor.seek(Position(ledger, 1))
    before = engine.calls["read"]
    assert numbers(4, 5) == datas(await cursor.read(9))
    assert 1 == engine.calls["read"] - before


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("how", ["acknowledged", "removed"])
async def test_a_read_whose_entries_are_acknowledged_meanwhile_continues(
    uncached: ManagedLedger, engine: FaultyEngine, how: str, *, waits: bool
) -> None:
    """It returned nothing although there was more, and one that waited waited for another entry."""
    cursor = await uncached.open_cursor("c", initial=EARLIEST)
    positions = [entry.position for entry in await cursor.read(6)]
    await cursor.rewind()
    hold = engine.hold_next("read")
    read = cursor.read_or_wait if waits else cursor.read
    reading = asyncio.ensure_future(read(2))
    await hold.reached()
    if how == "acknowledged":
        await cursor.mark_delete(positions[3])
    else:
        await uncached.trim_before(positions[4])
    hold.release()
    assert numbers(4, 5) == datas(await asyncio.wait_for(reading, 60))
