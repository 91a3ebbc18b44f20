"""The handle: order, rollover and failed writes."""

import asyncio
from itertools import pairwise

import pytest

from kledger.ledger import (
    EARLIEST,
    Fenced,
    InvalidArgument,
    LedgerError,
    LedgerState,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
    StorageFailed,
)
from kledger.ledger.testing import FaultyEngine, ManualClock
from tests.ledger.words import add_all, append, datas, numbers, settled

FULL = OSError(28, "no space left on device")


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


async def test_a_removed_listener_is_not_called(ml: ManagedLedger) -> None:
    results: list[int] = []

    def listener() -> None:
        results.append(1)

    ml.add_listener(listener)
    ml.remove_listener(listener)
    ml.remove_listener(listener)
    await ml.add_entry(b"x")
    assert [] == results


async def test_rows_are_atomic_with_their_entry(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    append(ml, b"a", rows=[(b"end", b"1"), (b"deleted", b"x")])
    append(ml, b"b", rows=[(b"end", b"2"), (b"deleted", None)])
    await store.flush()
    assert (b"2", None) == (store.get_row(b"end"), store.get_row(b"deleted"))
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


async def test_age_is_checked_by_an_append_before_the_timer(
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


async def test_a_failed_group_fails_its_callers_in_order_and_the_next_ledger_begins(
    ml: ManagedLedger, engine: FaultyEngine, store: LedgerStore
) -> None:
    results: list[tuple[Position, type[LedgerError] | None]] = []

    def done(position: Position, error: LedgerError | None) -> None:
        results.append((position, None if error is None else type(error)))

    first = await ml.add_entry(b"0")
    hold = engine.hold_next("commit")
    lost = [append(ml, b"lost", done) for _ in range(2)]
    await hold.reached()
    lost += [append(ml, b"lost", done) for _ in range(7)]
    hold.fail()
    await store.flush()
    assert [(position, StorageFailed) for position in lost] == results
    assert (first, LedgerState.LEDGER_OPENED) == (ml.last_confirmed_entry, ml.state)
    assert 0 == append(ml, b"1").entry_id
    await add_all(ml, numbers(2, 9))
    entries = await ml.read_entries(EARLIEST, 99)
    assert numbers(0, 9) == datas(entries)
    assert [1, 4, 4, 1] == [info.entries for info in ml.ledgers], "it ended at its true end"
    assert not set(lost) & {entry.position for entry in entries}, "an id stands for one entry"


async def test_appends_are_refused_while_failures_are_reported(
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


async def test_adds_are_retried_in_order(ml: ManagedLedger, engine: FaultyEngine) -> None:
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


async def test_other_managed_ledgers_fail_with_it_and_recover(
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


async def test_a_terminated_ledger_survives_a_failed_change(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    """The failed change increased the version: the next change took that for a conflict."""
    await ml.terminate()
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await ml.set_property("a", "b")
    await ml.set_property("a", "c")
    assert ({"a": "c"}, LedgerState.TERMINATED) == (ml.properties, ml.state)


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
