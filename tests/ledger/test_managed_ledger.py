"""The handle: order, rollover, failed writes, deletion, the end, and who owns it."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from ledger import (
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
    StorageFailed,
    StoreConfig,
    Terminated,
)
from ledger.testing import FaultyEngine, ManualClock
from tests.ledger.words import datas

OpenStore = Callable[..., Awaitable[LedgerStore]]
SMALL = ManagedLedgerConfig(max_entries_per_ledger=4)
FULL = OSError(28, "no space left on device")


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def unheard(position: Position, error: LedgerError | None) -> None:
    """Nobody asks."""


def append(
    ml: ManagedLedger,
    data: bytes,
    done: Callable[[Position, LedgerError | None], None] = unheard,
    rows: list[tuple[bytes, bytes | None]] | None = None,
) -> Position:
    return ml.append_nowait(data, 1, 0, done, rows or ())


async def add_all(ml: ManagedLedger, datas_: list[bytes]) -> list[Position]:
    return await asyncio.gather(*(ml.add_entry(data) for data in datas_))


async def settled(clock: ManualClock, ms: int = 0) -> None:
    """Let time pass, and let everything that became due happen."""
    clock.advance(ms)
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def engine() -> FaultyEngine:
    return FaultyEngine(None)


@pytest.fixture
async def store(open_store: OpenStore, engine: FaultyEngine) -> LedgerStore:
    return await open_store(engine=engine)


@pytest.fixture
async def ml(store: LedgerStore) -> ManagedLedger:
    return await store.open_managed_ledger("orders", config=SMALL)


# Appending


async def test_a_thousand_concurrent_adds_keep_their_order(ml: ManagedLedger) -> None:
    completed: list[Position] = []

    async def add(number: int) -> Position:
        position = await ml.add_entry(b"%d" % number)
        completed.append(position)
        return position

    positions = await asyncio.gather(*(add(number) for number in range(1000)))
    assert all(low < high for low, high in pairwise(positions))
    assert positions == completed
    assert 250 == len({position.ledger_id for position in positions})
    assert numbers(0, 999) == datas(await ml.read_entries(EARLIEST, 2000))


async def test_lac_moves_then_the_callback_then_the_listeners(ml: ManagedLedger) -> None:
    events: list[tuple[str, Position]] = []
    ml.add_listener(lambda: events.append(("listener", ml.last_confirmed_entry)))

    def done(position: Position, error: LedgerError | None) -> None:
        assert error is None
        assert position == ml.last_confirmed_entry
        entries = ml.read_cached(position, 1)
        assert entries is not None
        assert [position] == [entry.position for entry in entries]
        events.append(("done", position))

    positions = [append(ml, b"x", done) for _ in range(3)]
    assert [] == events
    await ml._committer.flush()
    assert [*(("done", p) for p in positions), ("listener", positions[-1])] == events


async def test_a_removed_listener_hears_nothing(ml: ManagedLedger) -> None:
    heard: list[int] = []

    def listener() -> None:
        heard.append(1)

    ml.add_listener(listener)
    ml.remove_listener(listener)
    ml.remove_listener(listener)
    await ml.add_entry(b"x")
    assert [] == heard


async def test_rows_are_atomic_with_their_entry(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    append(ml, b"a", rows=[(b"end", b"1"), (b"gone", b"x")])
    append(ml, b"b", rows=[(b"end", b"2"), (b"gone", None)])
    await store.flush()
    assert (b"2", None) == (store.get_row(b"end"), store.get_row(b"gone"))
    engine.fail_next("commit")
    append(ml, b"c", rows=[(b"end", b"3")])
    await store.flush()
    assert b"2" == store.get_row(b"end")
    assert [b"a", b"b"] == datas(await ml.read_entries(EARLIEST, 9))


async def test_anything_but_bytes_is_refused(ml: ManagedLedger) -> None:
    for wrong in ("text", None, 5, [1]):
        with pytest.raises(InvalidArgument):
            await ml.add_entry(wrong)  # type: ignore[arg-type]


async def test_a_caller_may_reuse_what_it_added(ml: ManagedLedger) -> None:
    buffer = bytearray(b"first")
    adding = asyncio.ensure_future(ml.add_entry(buffer))
    await asyncio.sleep(0)
    buffer[:] = b"other"
    await adding
    assert [b"first"] == datas(await ml.read_entries(EARLIEST, 9))


async def test_an_empty_entry_is_an_entry(ml: ManagedLedger) -> None:
    await ml.add_entry(b"")
    assert [b""] == datas(await ml.read_entries(EARLIEST, 9))


async def test_a_cancelled_add_is_appended_all_the_same(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    hold = engine.hold_next("commit")
    adding = asyncio.ensure_future(ml.add_entry(b"x"))
    await hold.reached()
    adding.cancel()
    hold.release()
    await add_all(ml, [b"y"])
    assert adding.cancelled()
    assert [b"x", b"y"] == datas(await ml.read_entries(EARLIEST, 9))


# Rollover


async def test_rollover_by_bytes(store: LedgerStore) -> None:
    config = ManagedLedgerConfig(max_bytes_per_ledger=25)
    ml = await store.open_managed_ledger("bytes", config=config)
    await add_all(ml, [bytes(10)] * 7)
    assert [(3, 30), (3, 30), (1, 10)] == [(info.entries, info.size) for info in ml.ledgers]


async def test_the_next_ledger_is_created_eagerly(ml: ManagedLedger) -> None:
    await add_all(ml, numbers(0, 3))
    full, fresh = ml.ledgers
    assert (4, 0, None) == (full.entries, fresh.entries, fresh.closed_ms)
    assert 1_000_000 == full.closed_ms


async def test_a_timer_rolls_a_ledger_that_is_old(store: LedgerStore, clock: ManualClock) -> None:
    config = ManagedLedgerConfig(max_rollover_ms=1000)
    ml = await store.open_managed_ledger("age", config=config)
    await settled(clock, 5000)
    assert 1 == len(ml.ledgers), "an empty ledger is never rolled by age"
    await ml.roll_over()
    assert 1 == len(ml.ledgers)
    await ml.add_entry(b"x")
    assert [1, 0] == [info.entries for info in ml.ledgers], "the ledger was old, the entry is in it"
    await ml.add_entry(b"y")
    await settled(clock, 999)
    assert [1, 1] == [info.entries for info in ml.ledgers]
    await settled(clock, 51)
    await store.flush()
    assert [1, 1, 0] == [info.entries for info in ml.ledgers]


async def test_age_is_checked_when_an_entry_comes_before_the_timer(
    store: LedgerStore, clock: ManualClock
) -> None:
    config = ManagedLedgerConfig(max_rollover_ms=100_000)
    ml = await store.open_managed_ledger("age", config=config)
    await ml.add_entry(b"x")
    clock.advance(100_000)
    await ml.add_entry(b"y")
    assert [2, 0] == [info.entries for info in ml.ledgers]


async def test_a_minimum_age_delays_rollover(store: LedgerStore, clock: ManualClock) -> None:
    config = ManagedLedgerConfig(max_entries_per_ledger=2, min_rollover_ms=100)
    ml = await store.open_managed_ledger("minimum", config=config)
    await add_all(ml, numbers(0, 4))
    clock.advance(100)
    await ml.add_entry(b"5")
    assert [6] == [info.entries for info in ml.ledgers]
    clock.advance(1)
    await ml.add_entry(b"6")
    assert [7, 0] == [info.entries for info in ml.ledgers]


async def test_roll_over_on_demand(ml: ManagedLedger) -> None:
    await ml.roll_over()
    assert 1 == len(ml.ledgers), "there is nothing to close"
    await ml.add_entry(b"x")
    await ml.roll_over()
    assert [1, 0] == [info.entries for info in ml.ledgers]


async def test_new_settings_hold_at_once(
    store: LedgerStore, ml: ManagedLedger, clock: ManualClock
) -> None:
    await add_all(ml, numbers(0, 2))
    ml.reconfigure(ManagedLedgerConfig(max_entries_per_ledger=-1, max_rollover_ms=10))
    assert 10 == ml.config.max_rollover_ms
    await add_all(ml, numbers(3, 9))
    assert [10] == [info.entries for info in ml.ledgers]
    await settled(clock, 11)
    await store.flush()
    assert [10, 0] == [info.entries for info in ml.ledgers]


# Failed writes


async def test_a_failed_group_fails_its_callers_in_order_and_ids_come_again(
    ml: ManagedLedger, engine: FaultyEngine, store: LedgerStore
) -> None:
    heard: list[tuple[Position, type[LedgerError] | None]] = []

    def done(position: Position, error: LedgerError | None) -> None:
        heard.append((position, error and type(error)))

    first = await ml.add_entry(b"0")
    hold = engine.hold_next("commit")
    lost = [append(ml, b"lost", done) for _ in range(2)]
    await hold.reached()
    lost += [append(ml, b"lost", done) for _ in range(7)]
    hold.fail()
    await store.flush()
    assert [(position, StorageFailed) for position in lost] == heard
    assert (first, LedgerState.LEDGER_OPENED) == (ml.last_confirmed_entry, ml.state)
    assert first.successor == append(ml, b"1")
    await add_all(ml, numbers(2, 9))
    assert numbers(0, 9) == datas(await ml.read_entries(EARLIEST, 99))
    assert [4, 4, 2] == [info.entries for info in ml.ledgers]


async def test_nothing_new_is_accepted_while_failures_are_told(
    ml: ManagedLedger, engine: FaultyEngine, store: LedgerStore
) -> None:
    states: list[LedgerState] = []

    def done(position: Position, error: LedgerError | None) -> None:
        states.append(ml.state)
        with pytest.raises(StorageFailed, match="waiting to recover"):
            append(ml, b"too early")

    engine.fail_next("commit")
    append(ml, b"x", done)
    await store.flush()
    assert [LedgerState.WRITE_FAILED] == states
    assert LedgerState.LEDGER_OPENED is ml.state


async def test_adds_are_sent_again_in_their_order(ml: ManagedLedger, engine: FaultyEngine) -> None:
    for _ in range(2):
        engine.fail_next("commit")
    positions = await add_all(ml, numbers(0, 9))
    assert positions == sorted(positions)
    assert numbers(0, 9) == datas(await ml.read_entries(EARLIEST, 99))
    assert 3 == engine.calls["commit"] - 1


async def test_a_full_disk_fails_appends_serves_reads_and_recovers(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    await ml.add_entry(b"0")
    engine.fail_next("commit", FULL)
    with pytest.raises(StorageFailed) as caught:
        await ml.add_entry(b"lost")
    assert caught.value.full
    assert [b"0"] == datas(await ml.read_entries(EARLIEST, 9))
    await ml.add_entry(b"1")
    assert numbers(0, 1) == datas(await ml.read_entries(EARLIEST, 9))


async def test_other_managed_ledgers_fail_with_it_and_go_on(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    other = await store.open_managed_ledger("other")
    failed: list[Position] = []
    engine.fail_next("commit")
    append(ml, b"a", lambda position, error: failed.append(position))
    append(other, b"b", lambda position, error: failed.append(position))
    await store.flush()
    assert 2 == len(failed)
    await ml.add_entry(b"1")
    await other.add_entry(b"2")
    assert [b"1"] == datas(await ml.read_entries(EARLIEST, 9))
    assert [b"2"] == datas(await other.read_entries(EARLIEST, 9))


async def test_metadata_that_was_not_written_did_not_change(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    await ml.add_entry(b"x")
    before = ml.ledgers
    for change in (ml.terminate, ml.roll_over, lambda: ml.set_property("a", "b")):
        engine.fail_next("commit")
        with pytest.raises(StorageFailed):
            await change()
        assert (before, {}, LedgerState.LEDGER_OPENED) == (ml.ledgers, ml.properties, ml.state)
    await ml.set_property("a", "c")
    await ml.roll_over()
    await ml.truncate()
    await ml.add_entry(b"y")
    assert [b"y"] == datas(await ml.read_entries(EARLIEST, 9))
    again = await store.open_managed_ledger("orders")
    assert ({"a": "c"}, [b"y"]) == (
        again.properties,
        datas(await again.read_entries(EARLIEST, 9)),
    )


async def test_a_failed_sync_fences_everything(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    await ml.add_entry(b"0")
    engine.fail_next("sync")
    with pytest.raises(Fenced):
        await ml.add_entry(b"1")
    assert LedgerState.FENCED is ml.state
    for call in (ml.add_entry(b"2"), ml.read_entries(EARLIEST, 1), ml.trim(), ml.terminate()):
        with pytest.raises(Fenced):
            await call
    assert store.is_fenced


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
    assert -1 == engine.last_entry(positions[0].ledger_id), "the data is gone too"
    await ml.add_entry(b"8")
    assert [b"8"] == datas(await ml.read_entries(EARLIEST, 9))


async def test_trim_before_takes_whole_ledgers(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 9))
    await ml.trim_before(positions[6])
    assert numbers(4, 9) == datas(await ml.read_entries(EARLIEST, 99))


async def test_listeners_hear_of_a_trim(ml: ManagedLedger) -> None:
    await add_all(ml, numbers(0, 7))
    heard: list[Position] = []
    ml.add_listener(lambda: heard.append(ml.first_position))
    await ml.truncate()
    assert ml.first_position in heard


async def test_trims_run_one_at_a_time(ml: ManagedLedger) -> None:
    await add_all(ml, numbers(0, 9))
    await asyncio.gather(ml.truncate(), ml.truncate(), ml.trim(), ml.roll_over(), ml.truncate())
    await ml.truncate()
    assert 1 == len(ml.ledgers)


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
    heard: list[Position] = []
    positions = [append(ml, data, lambda p, error: heard.append(p)) for data in numbers(0, 4)]
    end = await ml.terminate()
    assert (positions[-1], positions, LedgerState.TERMINATED) == (end, heard, ml.state)
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


async def test_terminate_behind_a_full_ledger(ml: ManagedLedger) -> None:
    positions = await add_all(ml, numbers(0, 3))
    assert positions[-1] == await ml.terminate()
    assert [4] == [info.entries for info in ml.ledgers]


async def test_listeners_hear_of_the_end(ml: ManagedLedger) -> None:
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
    heard: list[LedgerError | None] = []
    hold = engine.hold_next("commit")
    append(ml, b"x", lambda position, error: heard.append(error))
    closing = asyncio.ensure_future(ml.close())
    await hold.reached()
    with pytest.raises(AlreadyClosed):
        append(ml, b"y")
    hold.release()
    await closing
    assert [None] == heard
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
    """What the older one acknowledged is visible to the newer one; it can add nothing more."""
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
    """Compare-and-set: even a handle that was not told has lost when the version moved on."""
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
