"""A cursor as its user sees it: acknowledging, reading, setting positions, restarts."""

import asyncio

import pytest

from kledger.ledger import (
    EARLIEST,
    LATEST,
    AlreadyClosed,
    AlreadyMarkDeleted,
    ConcurrentFind,
    Cursor,
    Fenced,
    InvalidArgument,
    InvalidPosition,
    LedgerStore,
    ManagedLedger,
    Position,
    ResetInProgress,
    StorageFailed,
    StoreConfig,
)
from kledger.ledger.testing import FaultyEngine, ManualClock
from tests.ledger.cursors.words import crashed, reopened, unacknowledged
from tests.ledger.words import OpenStore, add_all, datas, numbers, pos


async def test_a_new_cursor_begins_at_the_end_or_at_the_first_entry(
    ml: ManagedLedger, positions: list[Position]
) -> None:
    latest = await ml.open_cursor("a")
    earliest = await ml.open_cursor("b", initial=EARLIEST)
    assert (positions[-1], 0) == (latest.mark_delete_position, latest.backlog)
    assert (ml.first_position, 10) == (earliest.mark_delete_position, earliest.backlog)
    assert (positions[0], True) == (earliest.read_position, earliest.is_durable)
    assert {"a": latest, "b": earliest} == dict(ml.cursors)
    assert latest is await ml.open_cursor("a", initial=EARLIEST)
    assert [] == await latest.read(10)
    with pytest.raises(InvalidArgument):
        await ml.open_cursor("c", initial=positions[3])
    with pytest.raises(InvalidArgument):
        await ml.open_cursor("")


async def test_entries_appended_while_a_cursor_is_made_are_before_it(
    ml: ManagedLedger, positions: list[Position], engine: FaultyEngine
) -> None:
    hold = engine.hold_next("sync")
    opening = asyncio.ensure_future(ml.open_cursor("c"))
    await hold.reached()
    adding = asyncio.ensure_future(ml.add_entry(b"meanwhile"))
    await asyncio.sleep(0)
    hold.release()
    cursor = await opening
    last = await adding
    assert cursor.mark_delete_position <= last
    assert cursor.backlog == ml.number_of_entries(cursor.read_position, LATEST)


async def test_reads_cross_ledgers_and_holes(cursor: Cursor, positions: list[Position]) -> None:
    assert numbers(0, 2) == datas(await cursor.read(3))
    assert positions[3] == cursor.read_position
    await cursor.delete([positions[3], positions[5]])
    assert [b"4", b"6", b"7"] == datas(await cursor.read(3))
    assert numbers(8, 9) == datas(await cursor.read(100))
    assert [] == await cursor.read(1)
    await cursor.rewind()
    assert [b"0", b"1", b"2", b"4"] == datas(await cursor.read(4))


async def test_reads_stop_at_bytes_and_positions(cursor: Cursor, positions: list[Position]) -> None:
    assert [b"0"] == datas(await cursor.read(10, max_bytes=1))
    assert [b"1", b"2"] == datas(await cursor.read(10, max_bytes=2))
    await cursor.delete(positions[4])
    assert [b"3", b"5", b"6"] == datas(await cursor.read(10, max_bytes=3))
    assert [b"7", b"8"] == datas(await cursor.read(10, max_position=positions[8]))
    assert [] == await cursor.read(10, max_position=positions[8])
    assert [b"9"] == datas(await cursor.read(10))
    for count, limits in ((0, {}), (1, {"max_bytes": 0}), (1, {"max_position": None})):
        with pytest.raises(InvalidArgument):
            await cursor.read(count, **limits)


async def test_two_reads_at_once_share_the_log(cursor: Cursor) -> None:
    first, second = await asyncio.gather(cursor.read(4), cursor.read(4))
    assert (numbers(0, 3), numbers(4, 7)) == (datas(first), datas(second))


async def test_acknowledgements_are_refused_where_nothing_is(
    cursor: Cursor, positions: list[Position]
) -> None:
    beyond = positions[-1].successor
    with pytest.raises(InvalidPosition):
        await cursor.mark_delete(beyond)
    with pytest.raises(InvalidPosition):
        await cursor.delete([positions[0], beyond])
    assert 10 == cursor.backlog
    await cursor.mark_delete(positions[4], properties={"p": 7})
    with pytest.raises(AlreadyMarkDeleted):
        await cursor.mark_delete(positions[3])
    await cursor.mark_delete(positions[4])
    assert ({"p": 7}, 5) == (cursor.properties, cursor.backlog)


async def test_what_was_acknowledged_survives_a_power_cut(
    store: LedgerStore,
    engine: FaultyEngine,
    open_store: OpenStore,
    cursor: Cursor,
    positions: list[Position],
) -> None:
    await cursor.mark_delete(positions[1], properties={"p": 1})
    await cursor.delete([positions[3], positions[8]])
    await cursor.delete_batch_index(positions[5], [0, 2], 3)
    ml = await crashed(store, engine, open_store)
    again = ml.cursors["c"]
    assert cursor.individually_deleted == again.individually_deleted
    assert ({"p": 1}, positions[1]) == (again.properties, again.mark_delete_position)
    assert frozenset({1}) == again.batch_indexes(positions[5])
    assert [b"2", b"4", b"5", b"6", b"7", b"9"] == await unacknowledged(ml)


async def test_a_clean_close_keeps_everything_in_the_snapshot(
    store: LedgerStore,
    engine: FaultyEngine,
    open_store: OpenStore,
    cursor: Cursor,
    positions: list[Position],
) -> None:
    await cursor.delete([positions[2], positions[8]])
    await cursor.delete_batch_index(positions[5], [1], 3)
    await store.close()
    keys = [key[:1] for key, _ in engine.scan(b"k", b"q")]
    assert (1, 0) == (keys.count(b"k"), keys.count(b"p"))
    ml = await reopened(engine, open_store)
    assert cursor.individually_deleted == ml.cursors["c"].individually_deleted
    assert frozenset({0, 2}) == ml.cursors["c"].batch_indexes(positions[5])
    assert 8 == ml.cursors["c"].backlog


async def test_a_call_that_returned_is_durable_and_one_that_failed_is_repeated(
    store: LedgerStore,
    engine: FaultyEngine,
    open_store: OpenStore,
    cursor: Cursor,
    positions: list[Position],
) -> None:
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await cursor.delete(positions[2])
    await cursor.delete(positions[2])  # it was acknowledged already, but not durable
    ml = await crashed(store, engine, open_store)
    assert 9 == ml.cursors["c"].backlog


async def test_acknowledgements_of_one_tick_share_a_sync(
    cursor: Cursor, engine: FaultyEngine, positions: list[Position]
) -> None:
    before = engine.calls["sync"]
    await asyncio.gather(*(cursor.delete(each) for each in positions[::2]))
    assert 1 == engine.calls["sync"] - before
    hold = engine.hold_next("sync")
    first = asyncio.ensure_future(cursor.delete(positions[1]))
    await hold.reached()
    rest = [asyncio.ensure_future(cursor.delete(each)) for each in positions[3:8:2]]
    await asyncio.sleep(0)
    assert not first.done()
    hold.release()
    await asyncio.gather(first, *rest)
    assert 3 == engine.calls["sync"] - before


async def test_a_failed_sync_ends_everything(
    cursor: Cursor, engine: FaultyEngine, positions: list[Position]
) -> None:
    engine.fail_next("sync")
    with pytest.raises(Fenced):
        await cursor.mark_delete(positions[1])
    for call in (cursor.mark_delete(positions[2]), cursor.read(1), cursor.reset(EARLIEST)):
        with pytest.raises(Fenced):
            await call


@pytest.mark.parametrize(
    ("target", "expected"),
    [(EARLIEST, 0), (LATEST, 10), (3, 3), (4, 4), (pos("1:0"), 0), (pos("99:0"), 10)],
)
async def test_a_reset_makes_everything_after_it_unacknowledged(
    cursor: Cursor, positions: list[Position], target: Position | int, expected: int
) -> None:
    await cursor.read(5)
    await cursor.mark_delete(positions[1])
    await cursor.delete(positions[6])
    await cursor.reset(positions[target] if isinstance(target, int) else target)
    assert 10 - expected == cursor.backlog
    assert numbers(expected, 9) == datas(await cursor.read(20))
    assert () == cursor.individually_deleted


async def test_a_forced_reset_keeps_a_position_that_does_not_exist(
    cursor: Cursor, positions: list[Position]
) -> None:
    await cursor.reset(Position(positions[3].ledger_id, 40), force=True)
    assert Position(positions[3].ledger_id, 40) == cursor.read_position
    assert numbers(4, 9) == datas(await cursor.read(20))


async def test_a_reset_is_durable_first_and_one_at_a_time(
    cursor: Cursor,
    store: LedgerStore,
    engine: FaultyEngine,
    open_store: OpenStore,
    positions: list[Position],
) -> None:
    await cursor.mark_delete(positions[5])
    hold = engine.hold_next("sync")
    resetting = asyncio.ensure_future(cursor.reset(positions[2]))
    await hold.reached()
    assert positions[5] == cursor.mark_delete_position
    for call in (
        cursor.reset(EARLIEST), cursor.rewind(), cursor.seek(EARLIEST), cursor.skip(1),
        cursor.clear_backlog(), cursor.read(1), cursor.read_or_wait(1),
        cursor.replay([positions[8]]), cursor.mark_delete(positions[7]),
        cursor.delete(positions[7]), cursor.delete_batch_index(positions[7], [0], 2),
    ):  # fmt: skip
        with pytest.raises(ResetInProgress):
            await call
    hold.release()
    await resetting
    assert positions[1] == cursor.mark_delete_position
    ml = await crashed(store, engine, open_store)
    assert numbers(2, 9) == await unacknowledged(ml)


async def test_a_reset_that_was_not_written_changes_nothing(
    cursor: Cursor, engine: FaultyEngine, positions: list[Position]
) -> None:
    await cursor.delete(positions[1])
    await cursor.read(3)
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await cursor.reset(positions[5])
    assert (positions[4], 9) == (cursor.read_position, cursor.backlog)
    assert not cursor.revision.is_running
    await cursor.reset(positions[5])
    assert 5 == cursor.backlog


async def test_a_cancelled_reset_completes(
    cursor: Cursor, store: LedgerStore, engine: FaultyEngine, positions: list[Position]
) -> None:
    hold = engine.hold_next("sync")
    resetting = asyncio.ensure_future(cursor.reset(positions[4]))
    await hold.reached()
    resetting.cancel()
    await asyncio.sleep(0)
    assert cursor.revision.is_running
    hold.release()
    with pytest.raises(asyncio.CancelledError):
        await resetting
    await store.flush()
    await asyncio.sleep(0)
    assert (positions[3], 6) == (cursor.mark_delete_position, cursor.backlog)


async def test_acknowledgements_before_a_reset_return_and_have_no_effect(
    cursor: Cursor,
    store: LedgerStore,
    engine: FaultyEngine,
    open_store: OpenStore,
    positions: list[Position],
) -> None:
    hold = engine.hold_next("sync")
    first = asyncio.ensure_future(cursor.mark_delete(positions[3]))
    await hold.reached()
    queued = asyncio.ensure_future(cursor.mark_delete(positions[7]))
    await asyncio.sleep(0)
    resetting = asyncio.ensure_future(cursor.reset(positions[1]))
    await asyncio.sleep(0)
    hold.release()
    await asyncio.gather(first, queued, resetting)
    assert positions[0] == cursor.mark_delete_position
    ml = await crashed(store, engine, open_store)
    assert numbers(1, 9) == await unacknowledged(ml)


async def test_a_late_acknowledgement_of_an_older_revision_does_nothing(
    cursor: Cursor, positions: list[Position]
) -> None:
    number = cursor.revision.number
    await cursor.mark_delete(positions[3], revision=number)
    await cursor.reset(EARLIEST)
    await cursor.mark_delete(positions[3], revision=number)
    await cursor.delete(positions[5], revision=number)
    await cursor.delete_batch_index(positions[6], [0], 2, revision=number)
    assert (10, None) == (cursor.backlog, cursor.batch_indexes(positions[6]))
    await cursor.delete(positions[5], revision=cursor.revision.number)
    assert 9 == cursor.backlog


async def test_skip_counts_unacknowledged_entries_only(
    cursor: Cursor, positions: list[Position]
) -> None:
    await cursor.delete([positions[1], positions[4]])
    await cursor.skip(3)
    assert (positions[4], 5) == (cursor.mark_delete_position, cursor.backlog)
    assert numbers(5, 9) == datas(await cursor.read(9))
    await cursor.skip(99)
    assert (positions[-1], 0) == (cursor.mark_delete_position, cursor.backlog)
    with pytest.raises(InvalidArgument):
        await cursor.skip(0)


async def test_a_cleared_backlog_is_cleared_after_a_crash(
    cursor: Cursor, store: LedgerStore, engine: FaultyEngine, open_store: OpenStore
) -> None:
    await cursor.clear_backlog()
    assert (0, []) == (cursor.backlog, await cursor.read(5))
    ml = await crashed(store, engine, open_store)
    assert [] == await unacknowledged(ml)


async def test_a_seek_reads_from_there_and_acknowledges_nothing(
    cursor: Cursor, positions: list[Position]
) -> None:
    await cursor.mark_delete(positions[2])
    await cursor.seek(positions[7])
    assert (numbers(7, 9), 7) == (datas(await cursor.read(9)), cursor.backlog)
    await cursor.seek(positions[0])
    assert numbers(3, 9) == datas(await cursor.read(9))
    await cursor.seek(positions[1], force=True)
    assert numbers(1, 9) == datas(await cursor.read(9))
    await cursor.seek(LATEST)
    assert [] == await cursor.read(9)


async def test_a_position_set_by_a_revision_is_durable_soon(
    cursor: Cursor,
    store: LedgerStore,
    engine: FaultyEngine,
    open_store: OpenStore,
    positions: list[Position],
) -> None:
    cursor.revision.start()
    cursor.revision.end(lambda state: setattr(state, "mark_delete_position", positions[6]))
    assert (positions[7], 3) == (cursor.read_position, cursor.backlog)
    await asyncio.sleep(0)
    await store.flush()
    assert numbers(7, 9) == await unacknowledged(await crashed(store, engine, open_store))


async def test_a_reset_to_a_time_goes_after_the_newest_older_entry(
    ml: ManagedLedger, clock: ManualClock
) -> None:
    for number in range(10):
        await ml.add_entry(b"%d" % number, max_timestamp_ms=1000 * (number // 2))
    cursor = await ml.open_cursor("c")
    for time_ms, first in ((0, 0), (1, 2), (3000, 6), (3001, 8), (9999, 10)):
        await cursor.reset_to_time(time_ms)
        assert numbers(first, 9) == datas(await cursor.read(20))
    await cursor.reset_to_time(7, time_of=lambda entry: int(entry.data))
    assert numbers(7, 9) == datas(await cursor.read(20))


async def test_one_search_by_time_at_a_time(
    store: LedgerStore, open_store: OpenStore, engine: FaultyEngine
) -> None:
    await store.close()
    store = await open_store(engine=engine, config=StoreConfig(cache_bytes=0))
    ml = await store.open_managed_ledger("orders")
    await ml.add_entry(b"0")
    cursor = await ml.open_cursor("c")
    hold = engine.hold_next("read")
    finding = asyncio.ensure_future(cursor.reset_to_time(5))
    await hold.reached()
    with pytest.raises(ConcurrentFind):
        await cursor.reset_to_time(5)
    hold.release()
    await finding


async def test_a_replay_reads_unacknowledged_entries_and_returns_the_other_positions(
    cursor: Cursor, positions: list[Position]
) -> None:
    await cursor.read(9)
    await cursor.mark_delete(positions[1])
    await cursor.delete(positions[5])
    wanted = [positions[6], positions[0], positions[2], positions[5], positions[3], positions[6]]
    entries, acknowledged = await cursor.replay(wanted)
    assert [positions[2], positions[3], positions[6]] == [entry.position for entry in entries]
    assert {positions[0], positions[5]} == acknowledged
    assert positions[9] == cursor.read_position
    await cursor.replay([positions[9]])
    assert positions[9] == cursor.read_position  # nothing is made up for
    for position in (positions[-1].successor, Position(positions[0].ledger_id, 50)):
        with pytest.raises(InvalidPosition):
            await cursor.replay([positions[4], position])


async def test_a_closed_cursor_refuses_and_can_be_opened_again(
    ml: ManagedLedger, cursor: Cursor, positions: list[Position]
) -> None:
    await cursor.delete(positions[3])
    assert cursor.is_active
    await cursor.close()
    await cursor.close()
    assert not cursor.is_active
    for call in (cursor.read(1), cursor.mark_delete(positions[5]), cursor.rewind()):
        with pytest.raises(AlreadyClosed):
            await call
    again = await ml.open_cursor("c")
    assert again is not cursor
    assert 9 == again.backlog
    await again.delete(positions[4])
    assert 8 == ml.cursors["c"].backlog


async def test_a_cursor_that_does_not_keep_up_is_not_active(ml: ManagedLedger) -> None:
    cursor = await ml.open_cursor("c")
    await add_all(ml, [b"x"] * 1001)
    assert not cursor.is_active
    await cursor.skip(1)
    assert cursor.is_active


async def test_stats_show_the_revision(cursor: Cursor, positions: list[Position]) -> None:
    await cursor.rewind()
    await cursor.delete(positions[4])
    stats = cursor.stats
    assert (9, 1, 1, False) == (
        stats.backlog,
        stats.hole_count,
        stats.revision_num,
        stats.is_under_revision,
    )
    cursor.revision.start()
    assert cursor.stats.is_under_revision
