"""The cursors of a managed ledger: made, deleted, kept in step with trims."""

import asyncio

import pytest

from kledger.ledger import (
    EARLIEST,
    LATEST,
    AlreadyClosed,
    CursorNotFound,
    Fenced,
    InvalidArgument,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
    ResetInProgress,
    StorageFailed,
)
from kledger.ledger.cursors import cursor_registry
from kledger.ledger.cursors.cursor_registry import UNKNOWN_MS, EntryTimes
from kledger.ledger.testing import FaultyEngine
from tests.ledger.words import SMALL, OpenStore, add_all, datas, numbers, pos


async def reopened(engine: FaultyEngine, open_store: OpenStore) -> ManagedLedger:
    store = await open_store(engine=engine)
    return await store.open_managed_ledger("orders", config=SMALL)


async def ticks(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("start", "first"),
    [(EARLIEST, 0), (LATEST, 10), (None, 10), (3, 4), (pos("99:0"), 10), (pos("1:5"), 0)],
)
async def test_a_non_durable_cursor_begins_after_its_start(
    ml: ManagedLedger, start: Position | int | None, first: int
) -> None:
    positions = await add_all(ml, numbers(0, 9))
    place = positions[start] if isinstance(start, int) else start
    cursor = await ml.new_non_durable_cursor(place)
    assert (False, 10 - first) == (cursor.is_durable, cursor.backlog)
    assert numbers(first, 9) == datas(await cursor.read(20))
    assert {} == dict(ml.cursors)


async def test_a_cursor_that_is_not_durable_costs_no_write_and_holds_back_nothing(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.new_non_durable_cursor(EARLIEST)
    before = engine.calls["commit"]
    await cursor.delete(positions[1])
    await cursor.mark_delete(positions[2])
    await cursor.reset(positions[1])
    await cursor.skip(1)
    assert (0, 8) == (engine.calls["commit"] - before, cursor.backlog)
    await ml.truncate()
    assert (1, 2) == (len(ml.ledgers), cursor.backlog)
    assert numbers(8, 9) == datas(await cursor.read(20))
    await cursor.close()
    with pytest.raises(AlreadyClosed):
        await cursor.read(1)
    with pytest.raises(InvalidArgument):
        await ml.new_non_durable_cursor("start")  # type: ignore[arg-type]


async def test_the_slowest_durable_cursor_holds_back_trim_and_truncate(
    ml: ManagedLedger, store: LedgerStore
) -> None:
    positions = await add_all(ml, numbers(0, 9))
    ml.reconfigure(ManagedLedgerConfig(max_entries_per_ledger=4, retention_bytes=0))
    fast = await ml.open_cursor("fast")
    slow = await ml.open_cursor("slow", initial=EARLIEST)
    await ml.trim()
    await ml.truncate()
    assert 10 == ml.number_of_entries(EARLIEST, LATEST)
    await slow.mark_delete(positions[2])
    await ml.trim()
    assert 10 == ml.number_of_entries(EARLIEST, LATEST)
    await slow.mark_delete(positions[3])
    await ml.trim()
    assert 6 == ml.number_of_entries(EARLIEST, LATEST)
    await ml.delete_cursor("slow")
    await ml.trim()
    assert (2, 0) == (ml.number_of_entries(EARLIEST, LATEST), fast.backlog)


async def test_progress_and_deletion_trim_by_themselves(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 9))
    ml.reconfigure(ManagedLedgerConfig(max_entries_per_ledger=4, retention_bytes=0))
    cursor = await ml.open_cursor("c", initial=EARLIEST)

    async def entries_left() -> int:
        for _ in range(20):
            await asyncio.sleep(0)
        await ml.trim_before(EARLIEST)  # waits for a trim under way
        return ml.number_of_entries(EARLIEST, LATEST)

    await cursor.mark_delete(positions[2])
    assert 10 == await entries_left()
    await cursor.mark_delete(positions[4])
    assert 6 == await entries_left()
    await ml.delete_cursor("c")
    assert 2 == await entries_left()


async def test_cursors_are_moved_over_what_is_removed_regardless_of_them(
    ml: ManagedLedger, engine: FaultyEngine, open_store: OpenStore
) -> None:
    """As a log start that is raised does; after a restart it is found so too."""
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.delete([positions[2], positions[8]])
    await ml.trim_before(positions[8])
    assert (positions[8], 1) == (cursor.mark_delete_position, cursor.backlog)
    assert [b"9"] == datas(await cursor.read(9))
    engine.drop_unsynced()
    again = (await reopened(engine, open_store)).cursors["c"]
    assert (positions[8], 1) == (again.mark_delete_position, again.backlog)


async def test_cursors_pass_over_what_readers_must_not_see_though_it_is_there(
    ml: ManagedLedger, engine: FaultyEngine, open_store: OpenStore
) -> None:
    """A log start in the middle of a ledger, and of a batch: nothing is removed for it."""
    positions = await add_all(ml, numbers(0, 9))
    behind = await ml.open_cursor("behind", initial=EARLIEST)
    ahead = await ml.open_cursor("ahead", initial=EARLIEST)
    volatile = await ml.new_non_durable_cursor(EARLIEST)
    await ahead.mark_delete(positions[7])
    ml.acknowledge_before(positions[5], records=2, batch_size=3)
    assert [(positions[4], 5), (positions[7], 2), (positions[4], 5)] == [
        (each.mark_delete_position, each.backlog) for each in (behind, ahead, volatile)
    ]
    assert (
        frozenset({2}) == behind.batch_indexes(positions[5]) == volatile.batch_indexes(positions[5])
    )
    assert numbers(5, 9) == datas(await volatile.read(20))
    ml.acknowledge_before(positions[2])
    ml.acknowledge_before(positions[5], records=1, batch_size=3)
    assert frozenset({2}) == behind.batch_indexes(positions[5])
    await behind.mark_delete(positions[4])  # which waits for what was on its way
    await ml.add_entry(b"10")
    engine.drop_unsynced()
    again = (await reopened(engine, open_store)).cursors["behind"]
    assert (positions[4], frozenset({2})) == (
        again.mark_delete_position,
        again.batch_indexes(positions[5]),
    )


@pytest.mark.parametrize("fails", [True, False])
async def test_what_is_passed_over_stays_so_when_a_revision_ends(
    ml: ManagedLedger, engine: FaultyEngine, fails: bool
) -> None:
    """The revision began with positions from before, and set them again."""
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    hold = engine.hold_next("commit")
    skipping = asyncio.ensure_future(cursor.skip(2))
    await hold.reached()
    ml.acknowledge_before(positions[5], records=2, batch_size=3)
    if fails:
        hold.fail()
        with pytest.raises(StorageFailed):
            await skipping
    else:
        hold.release()
        await skipping
    assert (positions[4], frozenset({2})) == (
        cursor.mark_delete_position,
        cursor.batch_indexes(positions[5]),
    )
    assert numbers(5, 9) == datas(await cursor.read(20))


async def test_what_is_passed_over_while_a_revision_is_about_to_be_written_stays_so(
    ml: ManagedLedger, store: LedgerStore, engine: FaultyEngine, open_store: OpenStore
) -> None:
    """What the revision would set was decided, but not visible yet."""
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.mark_delete(positions[8])
    resetting = asyncio.ensure_future(cursor.reset(positions[1]))
    asyncio.get_running_loop().call_soon(
        lambda: ml.acknowledge_before(positions[5], records=2, batch_size=3)
    )  # after the first step of the reset, before the first step of its work
    await resetting
    assert (positions[4], frozenset({2})) == (
        cursor.mark_delete_position,
        cursor.batch_indexes(positions[5]),
    )


async def test_what_is_passed_over_during_a_revision_is_durable_soon(
    ml: ManagedLedger, store: LedgerStore, engine: FaultyEngine, open_store: OpenStore
) -> None:
    """It counted as written with the revision, whose row was encoded before."""
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    hold = engine.hold_next("commit")
    resetting = asyncio.ensure_future(cursor.reset(positions[1]))
    await hold.reached()
    ml.acknowledge_before(positions[5], records=2, batch_size=3)
    behind = engine.hold_next("commit")
    hold.release()
    await resetting
    assert positions[0] == ml.slowest_position
    behind.release()
    await ticks()
    await store.flush()
    engine.drop_unsynced()
    again = (await reopened(engine, open_store)).cursors["c"]
    assert (positions[4], frozenset({2})) == (
        again.mark_delete_position,
        again.batch_indexes(positions[5]),
    )


async def test_passing_over_everything_leaves_no_backlog(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    assert ml.slowest_position == cursor.mark_delete_position
    ml.acknowledge_before(ml.next_valid_position(positions[9]))
    assert (0, positions[9]) == (cursor.backlog, cursor.mark_delete_position)
    await ml.add_entry(b"10")
    assert [b"10"] == datas(await cursor.read(5))
    await ml.delete_cursor("c")
    assert ml.slowest_position is None


async def test_a_deleted_cursor_stays_deleted(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine, open_store: OpenStore
) -> None:
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.delete(positions[1])
    await ml.delete_cursor("c")
    for call in (ml.delete_cursor("c"), ml.delete_cursor("never")):
        with pytest.raises(CursorNotFound):
            await call
    with pytest.raises(AlreadyClosed):
        await cursor.mark_delete(positions[2])
    assert {} == dict(ml.cursors)
    engine.drop_unsynced()
    ml = await reopened(engine, open_store)
    assert {} == dict(ml.cursors)
    assert [] == engine.scan(b"k", b"l")
    assert [] == engine.scan(b"p", b"q")


async def test_a_deletion_that_was_not_written_leaves_the_cursor(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 3))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await ml.delete_cursor("c")
    await cursor.mark_delete(positions[1])
    assert {"c": cursor} == dict(ml.cursors)


async def test_acknowledgements_over_a_deletion_end(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    hold = engine.hold_next("sync")
    deleting = asyncio.ensure_future(ml.delete_cursor("c"))
    await hold.reached()
    acknowledging = asyncio.ensure_future(cursor.delete(positions[2]))
    await asyncio.sleep(0)
    hold.release()
    await asyncio.wait_for(asyncio.gather(deleting, acknowledging), 60)
    assert [] == engine.scan(b"p", b"q")


async def test_closing_during_a_deletion_does_not_bring_the_cursor_back(
    ml: ManagedLedger, engine: FaultyEngine, open_store: OpenStore
) -> None:
    """The last row of a closed cursor was written after the deletion."""
    positions = await add_all(ml, numbers(0, 3))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.delete(positions[1])
    hold = engine.hold_next("sync")
    deleting = asyncio.ensure_future(ml.delete_cursor("c"))
    await hold.reached()
    closing = asyncio.ensure_future(ml.close())
    await ticks()
    hold.release()
    await asyncio.gather(deleting, closing)
    assert {} == dict((await reopened(engine, open_store)).cursors)


async def test_cursors_go_with_their_managed_ledger(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 3))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.delete(positions[1])
    other = await store.open_managed_ledger("other")
    await other.open_cursor("c")
    await store.delete_managed_ledger("orders")
    assert 1 == len(engine.scan(b"k", b"l"))
    assert [] == engine.scan(b"p", b"q")
    for call in (cursor.read(1), cursor.mark_delete(positions[2]), ml.open_cursor("d")):
        with pytest.raises(AlreadyClosed):
            await call
    assert {} == dict((await store.open_managed_ledger("orders")).cursors)


async def test_a_newer_handle_takes_the_cursors_over(store: LedgerStore, ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.delete([positions[0], positions[5]])
    newer = await store.open_managed_ledger("orders", config=SMALL)
    assert 8 == newer.cursors["c"].backlog
    for call in (cursor.read(1), cursor.delete(positions[2]), cursor.reset(EARLIEST)):
        with pytest.raises(Fenced):
            await call
    with pytest.raises(Fenced):
        await ml.delete_cursor("c")
    await cursor.close()
    assert (True, 8) == (cursor.is_closed, newer.cursors["c"].backlog)


async def test_opening_one_name_twice_at_once_makes_one_cursor(ml: ManagedLedger) -> None:
    first, second = await asyncio.gather(ml.open_cursor("c"), ml.open_cursor("c"))
    assert first is second


async def test_a_cursor_that_could_not_be_made_is_not_there(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await ml.open_cursor("c")
    assert {} == dict(ml.cursors)
    assert (await ml.open_cursor("c")).is_durable


async def test_a_cursor_holds_back_trimming_from_the_moment_its_row_is_on_its_way(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    """A ledger was trimmed that held unacknowledged entries when the call returned."""
    await add_all(ml, numbers(0, 9))
    hold = engine.hold_next("sync")
    first = asyncio.ensure_future(store.put_rows([(b"k", b"v")]))
    await hold.reached()
    opening = asyncio.ensure_future(ml.open_cursor("c", initial=EARLIEST))
    await ticks()
    trimming = asyncio.ensure_future(ml.truncate())
    await ticks()
    hold.release()
    cursor, *_ = await asyncio.gather(opening, trimming, first)
    assert (10, 10) == (cursor.backlog, ml.number_of_entries(EARLIEST, LATEST))


async def test_a_cursor_at_the_end_retains_what_a_crash_makes_unacknowledged(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    """What was appended while it was made is after its row until that is written again."""
    positions = await add_all(ml, numbers(0, 1))
    hold = engine.hold_next("sync")
    adding = asyncio.ensure_future(add_all(ml, numbers(2, 9)))
    await hold.reached()
    opening = asyncio.ensure_future(ml.open_cursor("c"))
    await ticks()
    engine.delay_next("commit", 0)  # that of its row; the next one has to wait
    behind = engine.hold_next("commit")
    hold.release()
    positions += await adding
    cursor = await opening
    assert (positions[9], positions[1]) == (cursor.mark_delete_position, ml.slowest_position)
    behind.release()
    await ticks()
    await store.flush()
    assert positions[9] == ml.slowest_position


@pytest.mark.parametrize("fails", [False, True])
async def test_a_reset_holds_back_trimming_from_the_moment_its_row_is_on_its_way(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine, *, fails: bool
) -> None:
    """A trim that did not know of the reset removed what that made unacknowledged."""
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c")
    hold = engine.hold_next("sync")
    acknowledging = asyncio.ensure_future(cursor.mark_delete(positions[9], properties={"x": 1}))
    await hold.reached()
    resetting = asyncio.ensure_future(cursor.reset(EARLIEST))
    await ticks()
    trimming = asyncio.ensure_future(ml.truncate())
    await ticks()
    if fails:
        engine.fail_next("commit")
    hold.release()
    outcomes = await asyncio.gather(resetting, trimming, acknowledging, return_exceptions=True)
    assert [StorageFailed if fails else type(None), type(None)] == [type(e) for e in outcomes[:2]]
    assert 10 == ml.number_of_entries(EARLIEST, LATEST)
    assert (0 if fails else 10) == cursor.backlog
    await ml.truncate()
    assert (2 if fails else 10) == ml.number_of_entries(EARLIEST, LATEST)


async def test_a_reset_during_a_deletion_leaves_nothing_to_the_next_of_that_name(
    ml: ManagedLedger, engine: FaultyEngine, open_store: OpenStore
) -> None:
    """Its row was written after the deletion, and a new cursor began there after a restart."""
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    hold = engine.hold_next("sync")
    deleting = asyncio.ensure_future(ml.delete_cursor("c"))
    resetting = asyncio.ensure_future(cursor.reset(positions[7]))
    await hold.reached()
    hold.release()
    await deleting
    with pytest.raises(AlreadyClosed):
        await resetting
    assert [] == engine.scan(b"p", b"q")
    await ml.open_cursor("c", initial=EARLIEST)
    engine.drop_unsynced()
    assert 10 == (await reopened(engine, open_store)).cursors["c"].backlog


async def test_a_revision_continues_when_its_cursor_is_closed_and_opened_again(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    """What the new opening read under the old positions was dispatched under the new ones."""
    await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c")
    hold = engine.hold_next("sync")
    resetting = asyncio.ensure_future(cursor.reset(EARLIEST))
    await hold.reached()
    closing = asyncio.ensure_future(cursor.close())
    await ticks()
    again = await ml.open_cursor("c")
    assert again.revision.is_running
    with pytest.raises(ResetInProgress):
        await again.read(1)
    hold.release()
    await asyncio.gather(resetting, closing)
    assert (1, 10) == (again.revision.number, again.backlog)
    assert numbers(0, 9) == datas(await again.read(20))


def times(latest: dict[int, int] | None = None) -> EntryTimes:
    return EntryTimes((latest or {}).get)


def test_an_entry_has_the_time_noted_at_or_before_it() -> None:
    known = times()
    for text, time_ms in (("3:0", 10), ("3:1", 10), ("3:4", 20), ("5:0", 30)):
        known.record(pos(text), time_ms)
    found = [known.time_of(pos(text)) for text in ("3:0", "3:1", "3:3", "3:4", "3:9", "5:2")]
    assert [10, 10, 10, 20, 20, 30] == found


def test_what_was_not_noted_is_as_new_as_its_ledger_can_be() -> None:
    known = times({3: 70})
    known.record(pos("3:4"), 20)
    assert [70, 20, UNKNOWN_MS] == [known.time_of(pos(text)) for text in ("3:3", "3:4", "5:0")]
    known.record(pos("3:2"), 5)  # too late
    assert 70 == known.time_of(pos("3:3"))


def test_forgotten_ledgers_and_old_ones_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_registry, "STEPS_MAX", 3)
    known = times()
    for number, text in enumerate(("3:0", "3:1", "5:0", "5:1")):
        known.record(pos(text), number)
    assert [UNKNOWN_MS, 3] == [known.time_of(pos(text)) for text in ("3:1", "5:1")]
    known.forget(5)
    known.forget(5)
    assert UNKNOWN_MS == known.time_of(pos("5:1"))
