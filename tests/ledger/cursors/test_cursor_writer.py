"""When and how much of a cursor is written, and its recovery from damaged rows."""

import asyncio
import logging

import pytest

from kledger.ledger import (
    EARLIEST,
    CursorState,
    LedgerError,
    LedgerStore,
    ManagedLedger,
    StorageFailed,
    StoreConfig,
)
from kledger.ledger.cursors import cursor_rows_state, cursor_writer
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.metadata import keys
from kledger.ledger.testing import FaultyEngine, ManualClock
from tests.ledger.words import SMALL, OpenStore, add_all, numbers, settled


async def opened(
    engine: FaultyEngine, open_store: OpenStore, **config: object
) -> tuple[LedgerStore, ManagedLedger]:
    store = await open_store(engine=engine, config=StoreConfig(**config))  # type: ignore[arg-type]
    return store, await store.open_managed_ledger("orders", config=SMALL)


async def after_crash(engine: FaultyEngine, open_store: OpenStore) -> ManagedLedger:
    """The store after a crash that loses everything that was not synced."""
    engine.drop_unsynced()
    _, ml = await opened(engine, open_store)
    return ml


async def test_the_pace_lets_calls_return_before_they_are_durable(
    engine: FaultyEngine, open_store: OpenStore, clock: ManualClock
) -> None:
    store, ml = await opened(engine, open_store, cursor_persist_per_second=1)
    positions = await add_all(ml, numbers(0, 5))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    before = engine.calls["sync"]
    await cursor.mark_delete(positions[0])
    await cursor.mark_delete(positions[1])
    await cursor.delete(positions[3])
    assert 1 == engine.calls["sync"] - before
    assert (positions[1], 3) == (cursor.mark_delete_position, cursor.backlog)
    engine.drop_unsynced()
    store, ml = await opened(engine, open_store, cursor_persist_per_second=1)
    cursor = ml.cursors["c"]
    assert positions[0] == cursor.mark_delete_position
    await cursor.mark_delete(positions[1])
    await cursor.mark_delete(positions[2])
    await settled(clock, 1001)
    await store.flush()
    ml = await after_crash(engine, open_store)
    assert positions[2] == ml.cursors["c"].mark_delete_position


async def test_a_reset_does_not_wait_for_the_pace_and_closing_writes_the_rest(
    engine: FaultyEngine, open_store: OpenStore
) -> None:
    store, ml = await opened(engine, open_store, cursor_persist_per_second=0.01)
    positions = await add_all(ml, numbers(0, 5))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.mark_delete(positions[0])
    await cursor.reset(positions[3])
    engine.drop_unsynced()
    store, ml = await opened(engine, open_store, cursor_persist_per_second=0.01)
    cursor = ml.cursors["c"]
    assert positions[2] == cursor.mark_delete_position
    await cursor.mark_delete(positions[3])
    await cursor.mark_delete(positions[4])
    await store.close()
    _, ml = await opened(engine, open_store)
    assert positions[4] == ml.cursors["c"].mark_delete_position


async def test_failed_write_is_repeated_later(
    engine: FaultyEngine, open_store: OpenStore, clock: ManualClock
) -> None:
    store, ml = await opened(engine, open_store, cursor_persist_per_second=1)
    positions = await add_all(ml, numbers(0, 5))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.mark_delete(positions[0])
    await cursor.mark_delete(positions[1])
    engine.fail_next("commit")
    await settled(clock, 1001)
    await store.flush()
    await settled(clock, 1001)
    await store.flush()
    ml = await after_crash(engine, open_store)
    assert positions[1] == ml.cursors["c"].mark_delete_position


async def test_above_the_limit_the_highest_are_redelivered_with_a_warning(
    engine: FaultyEngine, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    _, ml = await opened(engine, open_store, cursor_ranges_max=2)
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    with caplog.at_level(logging.WARNING):
        await cursor.delete(positions[1::2])
    assert ["more than 2 ranges" in record.message for record in caplog.records] == [True]
    assert 5 == cursor.backlog
    ml = await after_crash(engine, open_store)
    assert 8 == ml.cursors["c"].backlog
    again = await ml.cursors["c"].read(20)
    assert [0, 2, 4, 5, 6, 7, 8, 9] == [int(entry.data) for entry in again]


async def test_a_cursor_with_many_ranges_keeps_its_progress_row_when_closed(
    engine: FaultyEngine, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_writer, "SNAPSHOT_RANGES_MAX", 2)
    store, ml = await opened(engine, open_store)
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.delete(positions[1::2])
    await cursor.delete_batch_index(positions[4], [1], 2)
    await store.close()
    store, ml = await opened(engine, open_store)
    assert 5 == ml.cursors["c"].backlog
    assert frozenset({0}) == ml.cursors["c"].batch_indexes(positions[4])


def kinds_of(engine: FaultyEngine) -> str:
    """Return the kinds of the cursors' rows: k snapshot, p progress, d change."""
    return "".join(chr(key[0]) for kind in (b"k", b"p", b"d")
                   for key, _ in engine.scan(kind, keys.successor(kind)))  # fmt: skip


@pytest.fixture
def small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit of holes."""
    monkeypatch.setattr(cursor_rows_state, "SMALL_PARTS_MAX", 1)


@pytest.mark.usefixtures("small_rows")
async def test_an_acknowledgement_writes_its_changes_and_a_crash_loses_none(
    engine: FaultyEngine, open_store: OpenStore
) -> None:
    """Every acknowledgement wrote the whole cursor, with all its holes."""
    _, ml = await opened(engine, open_store)
    positions = await add_all(ml, numbers(0, 19))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.delete(positions[1:14:2])
    assert "kp" == kinds_of(engine)
    await cursor.delete(positions[15])
    await cursor.delete_batch_index(positions[17], [0, 2], 4)
    await cursor.delete_batch_index(positions[17], [3], 4)
    await cursor.mark_delete(positions[2], properties={"page": 3})
    assert "kpdddd" == kinds_of(engine)
    ml = await after_crash(engine, open_store)
    again = ml.cursors["c"]
    assert cursor.individually_deleted == again.individually_deleted
    assert (positions[3], {"page": 3}) == (again.mark_delete_position, again.properties)
    assert frozenset({1}) == again.batch_indexes(positions[17])


@pytest.mark.usefixtures("small_rows")
async def test_a_closed_or_deleted_cursor_leaves_no_changes(
    engine: FaultyEngine, open_store: OpenStore
) -> None:
    _, ml = await opened(engine, open_store)
    positions = await add_all(ml, numbers(0, 19))
    for name in ("closed", "deleted"):
        cursor = await ml.open_cursor(name, initial=EARLIEST)
        for at in (1, 3, 5, 7):
            await cursor.delete(positions[at])
    assert "kkppdddddd" == kinds_of(engine)
    await ml.delete_cursor("deleted")
    await ml.cursors["closed"].close()
    assert "k" == kinds_of(engine)
    cursor = await ml.open_cursor("closed")
    await cursor.delete(positions[9])
    await cursor.delete(positions[11])
    assert "kpd" == kinds_of(engine)
    ml = await after_crash(engine, open_store)
    assert 14 == ml.cursors["closed"].backlog


@pytest.mark.usefixtures("small_rows")
async def test_a_reset_undoes_earlier_changes(engine: FaultyEngine, open_store: OpenStore) -> None:
    _, ml = await opened(engine, open_store)
    positions = await add_all(ml, numbers(0, 19))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    for at in (1, 3, 5, 7):
        await cursor.delete(positions[at])
    await cursor.reset(EARLIEST)
    ml = await after_crash(engine, open_store)
    assert 20 == ml.cursors["c"].backlog


@pytest.mark.usefixtures("small_rows")
async def test_a_change_that_was_not_written_is_in_the_next_progress_row(
    engine: FaultyEngine, open_store: OpenStore
) -> None:
    _, ml = await opened(engine, open_store)
    positions = await add_all(ml, numbers(0, 19))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.delete(positions[1:6:2])
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await cursor.delete(positions[7])
    await cursor.delete(positions[9])
    ml = await after_crash(engine, open_store)
    assert 15 == ml.cursors["c"].backlog


@pytest.mark.usefixtures("small_rows")
async def test_an_editor_that_raised_adds_nothing_to_the_next_change(
    engine: FaultyEngine, open_store: OpenStore
) -> None:
    _, ml = await opened(engine, open_store)
    positions = await add_all(ml, numbers(0, 19))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.delete(positions[1:6:2])

    def fail(state: CursorState) -> None:
        state.delete([positions[9]])
        raise ZeroDivisionError

    cursor.revision.start()
    with pytest.raises(ZeroDivisionError):
        cursor.revision.end(fail)
    await cursor.delete(positions[11])
    ml = await after_crash(engine, open_store)
    assert 16 == ml.cursors["c"].backlog


@pytest.mark.parametrize(("kinds", "first"), [("p", 4), ("kp", 0), ("k", 7)])
async def test_a_damaged_row_is_replaced_by_the_previous_one(
    engine: FaultyEngine,
    open_store: OpenStore,
    caplog: pytest.LogCaptureFixture,
    kinds: str,
    first: int,
) -> None:
    """The snapshot says 4, the progress 7."""
    store, ml = await opened(engine, open_store)
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.mark_delete(positions[3])
    await store.close()
    store, ml = await opened(engine, open_store)
    await ml.cursors["c"].mark_delete(positions[6])
    engine.drop_unsynced()
    for key, row in engine.scan(b"k", b"q"):
        if chr(key[0]) in kinds:
            group = CommitGroup(entries=[], rows=[(key, row[:-1] + b"?")], drops=[])
            engine.commit(group, sync=True)
            engine.index(group)
    _, ml = await opened(engine, open_store)
    assert numbers(first, 9) == [entry.data for entry in await ml.cursors["c"].read(20)]
    assert ("will be redelivered" in caplog.text) == (kinds != "k")


async def test_a_fenced_handle_overwrites_nothing_of_the_next(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    hold = engine.hold_next("sync")
    first = asyncio.ensure_future(cursor.delete(positions[1]))
    await hold.reached()
    late = asyncio.ensure_future(cursor.delete(positions[2]))
    await asyncio.sleep(0)
    opening = asyncio.ensure_future(store.open_managed_ledger("orders", config=SMALL))
    await asyncio.sleep(0)
    hold.release()
    successor = await opening
    outcomes = await asyncio.gather(first, late, return_exceptions=True)
    assert [None, "Fenced"] == [each and type(each).__name__ for each in outcomes]
    row = engine.get(keys.cursor_progress_key(1, "c"))
    await successor.cursors["c"].delete(positions[5])
    assert row is not None
    assert 8 == successor.cursors["c"].backlog


async def test_trimming_follows_durable_acknowledgements_only(
    engine: FaultyEngine, open_store: OpenStore, clock: ManualClock
) -> None:
    store, ml = await opened(engine, open_store, cursor_persist_per_second=1)
    positions = await add_all(ml, numbers(0, 9))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.mark_delete(positions[0])
    await cursor.mark_delete(positions[8])
    await ml.truncate()
    assert 3 == len(ml.ledgers)
    await settled(clock, 1001)
    await store.flush()
    await ml.truncate()
    assert 1 == len(ml.ledgers)


@pytest.mark.parametrize("how", ["reset", "delete"])
async def test_postponed_changes_are_written_after_another_failure(
    engine: FaultyEngine, open_store: OpenStore, clock: ManualClock, how: str
) -> None:
    """The timer had ended, or fired during the reset, and nothing else wrote them."""
    store, ml = await opened(engine, open_store, cursor_persist_per_second=1)
    positions = await add_all(ml, numbers(0, 5))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.mark_delete(positions[0])
    await cursor.mark_delete(positions[1])
    hold = engine.hold_next("commit")
    work = cursor.reset(positions[4]) if how == "reset" else ml.delete_cursor("c")
    failing = asyncio.ensure_future(work)
    await hold.reached()
    await settled(clock, 1001)
    hold.fail()
    with pytest.raises(StorageFailed):
        await failing
    await settled(clock, 1001)
    await store.flush()
    ml = await after_crash(engine, open_store)
    assert positions[1] == ml.cursors["c"].mark_delete_position


@pytest.mark.parametrize("how", ["pace", "note"])
async def test_changes_that_become_due_during_a_write_are_written_after_it(
    engine: FaultyEngine, open_store: OpenStore, clock: ManualClock, how: str
) -> None:
    """No call waited for them, so the end of the write dropped them."""
    config = {"cursor_persist_per_second": 1} if how == "pace" else {}
    store, ml = await opened(engine, open_store, **config)
    positions = await add_all(ml, numbers(0, 5))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    hold = engine.hold_next("sync")
    first = asyncio.ensure_future(cursor.mark_delete(positions[0]))
    await hold.reached()
    if how == "pace":
        await cursor.mark_delete(positions[1])
        await settled(clock, 1001)
    else:
        ml.acknowledge_before(positions[2])
    hold.release()
    await first
    await settled(clock)
    await store.flush()
    ml = await after_crash(engine, open_store)
    assert positions[1] == ml.cursors["c"].mark_delete_position


async def test_early_returned_changes_are_written_again_when_their_group_fails(
    engine: FaultyEngine, open_store: OpenStore, clock: ManualClock
) -> None:
    """A waiting call got the error; changes without a waiting call were lost."""
    store, ml = await opened(engine, open_store, cursor_persist_per_second=1)
    positions = await add_all(ml, numbers(0, 5))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    engine.fail_next("commit")
    outcomes = await asyncio.gather(
        cursor.mark_delete(positions[0]), cursor.mark_delete(positions[1]), return_exceptions=True
    )
    assert [StorageFailed, type(None)] == [type(each) for each in outcomes]
    await settled(clock, 1001)
    await store.flush()
    ml = await after_crash(engine, open_store)
    assert positions[1] == ml.cursors["c"].mark_delete_position


@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize("how", ["reset", "delete"])
async def test_closing_writes_changes_that_a_failed_write_lost(
    engine: FaultyEngine, open_store: OpenStore, clock: ManualClock, how: str, when: str
) -> None:
    """A closed cursor wrote nothing, so changes that had returned early were not durable.

    `between`: the storage had failed, and the task that changes the cursor had not resumed yet.
    """
    store, ml = await opened(engine, open_store, cursor_persist_per_second=1)
    positions = await add_all(ml, numbers(0, 5))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.mark_delete(positions[0])
    await cursor.mark_delete(positions[1])
    hold = engine.hold_next("commit")
    outcomes: list[LedgerError | None] = []
    changing = asyncio.ensure_future(
        cursor.reset(positions[4]) if how == "reset" else ml.delete_cursor("c")
    )
    await asyncio.sleep(0)
    if when == "between":
        store.append_rows_nowait([(b"r", b"")], lambda _: cursor.submit_close(outcomes.append))
    await hold.reached()
    if when == "before":
        cursor.submit_close(outcomes.append)
    hold.fail()
    with pytest.raises(StorageFailed):
        await changing
    await settled(clock)
    await store.flush()
    assert [StorageFailed if when == "before" else type(None)] == [type(each) for each in outcomes]
    ml = await after_crash(engine, open_store)
    assert positions[1] == ml.cursors["c"].mark_delete_position


async def test_closing_confirms_nothing_of_the_next_opening(
    engine: FaultyEngine, open_store: OpenStore, clock: ManualClock
) -> None:
    """Acknowledgements during the closing write counted as written."""
    store, ml = await opened(engine, open_store, cursor_persist_per_second=1)
    positions = await add_all(ml, numbers(0, 5))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.mark_delete(positions[0])
    hold = engine.hold_next("commit")
    closing = asyncio.ensure_future(cursor.close())
    await hold.reached()
    cursor = await ml.open_cursor("c")
    await cursor.mark_delete(positions[1])
    hold.release()
    await closing
    await settled(clock, 1001)
    await store.flush()
    ml = await after_crash(engine, open_store)
    assert positions[1] == ml.cursors["c"].mark_delete_position
