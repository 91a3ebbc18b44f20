"""Rollover by every reason, while writes are held, and while they fail."""

import asyncio

import pytest

from kledger.ledger import (
    EARLIEST,
    LedgerError,
    LedgerState,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
    StorageFailed,
)
from kledger.ledger.handle.rollover_timer import RETRY_MS
from kledger.ledger.testing import FaultyEngine, ManualClock
from tests.ledger.words import UNLIMITED, add_all, all_of, append, numbers, settled, with_limits

FOREVER = ManagedLedgerConfig(max_entries_per_ledger=-1, max_rollover_ms=-1)


def counts(ml: ManagedLedger) -> list[int]:
    return [info.entries for info in ml.ledgers]


async def opened(store: LedgerStore, **limits: int) -> ManagedLedger:
    """Open a managed ledger that only these limits roll."""
    return await store.open_managed_ledger("rolls", config=with_limits(UNLIMITED, **limits))


# Reasons for a rollover


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_entries_per_ledger": 3}, [3, 3, 1]),
        ({"max_bytes_per_ledger": 25}, [3, 3, 1]),
        ({"max_entries_per_ledger": 3, "max_bytes_per_ledger": 20}, [2, 2, 2, 1]),
        ({"max_entries_per_ledger": 1}, [1] * 7 + [0]),
        ({}, [7]),
    ],
)
async def test_the_entry_that_reaches_a_limit_is_in_the_old_ledger(
    store: LedgerStore, limits: dict[str, int], expected: list[int]
) -> None:
    ml = await opened(store, **limits)
    await add_all(ml, [bytes(10)] * 7)
    assert expected == counts(ml)


async def test_an_inactive_ledger_is_rolled_and_an_active_one_is_not(
    store: LedgerStore, clock: ManualClock
) -> None:
    ml = await opened(store, inactive_rollover_ms=100)
    await settled(clock, 1000)
    assert [0] == counts(ml), "an empty ledger is never rolled"
    for _ in range(5):
        await ml.add_entry(b"x")
        await settled(clock, 99)
    assert [5] == counts(ml)
    await ml.set_property("not", "an append")
    await settled(clock, 1)
    await store.flush()
    assert [5, 0] == counts(ml)
    await settled(clock, 1000)
    await store.flush()
    assert [5, 0] == counts(ml)


async def test_the_least_age_does_not_keep_an_inactive_ledger(
    store: LedgerStore, clock: ManualClock
) -> None:
    ml = await opened(store, inactive_rollover_ms=100, min_rollover_ms=500)
    await ml.add_entry(b"x")
    await settled(clock, 100)
    await store.flush()
    assert [1, 0] == counts(ml)


async def test_a_handle_that_is_not_open_any_more_rolls_nothing(
    store: LedgerStore, clock: ManualClock, engine: FaultyEngine
) -> None:
    ml = await opened(store, max_rollover_ms=100)
    await ml.add_entry(b"x")
    newer = await opened(store, max_rollover_ms=-1)
    commits = engine.calls["commit"]
    ml.reconfigure(ManagedLedgerConfig(max_rollover_ms=10))
    await settled(clock, 1000)
    await store.flush()
    assert (commits, [1, 0]) == (engine.calls["commit"], counts(newer))


async def test_a_deletion_that_failed_leaves_the_timer_running(
    store: LedgerStore, clock: ManualClock, engine: FaultyEngine
) -> None:
    ml = await opened(store, max_rollover_ms=100)
    await ml.add_entry(b"x")
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await store.delete_managed_ledger("rolls")
    await settled(clock, 105)
    await store.flush()
    assert [1, 0] == counts(ml)


# While a rollover is in flight


async def test_appends_during_a_rollover_are_accepted_at_once_and_confirmed_in_order(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    """Pulsar queues them; here closing and creating are rows of the same ordered stream."""
    outcomes: list[tuple[Position, LedgerError | None]] = []

    def done(position: Position, error: LedgerError | None) -> None:
        outcomes.append((position, error))

    hold = engine.hold_next("commit")
    positions = [append(ml, data, done) for data in numbers(0, 3)]
    states = [ml.state]
    await hold.reached()
    positions += [append(ml, data, done) for data in numbers(4, 13)]
    states.append(ml.state)
    assert [] == outcomes
    assert [0, 1, 2, 3] * 3 + [0, 1] == [position.entry_id for position in positions]
    assert positions == sorted(positions)
    hold.release()
    await store.flush()
    assert [(position, None) for position in positions] == outcomes
    assert (numbers(0, 13), [4, 4, 4, 2]) == (await all_of(ml), counts(ml))
    closing = LedgerState.CLOSING_LEDGER
    assert [closing, closing, LedgerState.LEDGER_OPENED] == [*states, ml.state]


async def test_the_next_ledger_is_created_when_the_old_one_is_confirmed(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    await ml.add_entry(b"0")
    hold = engine.hold_next("commit")
    rolling = asyncio.ensure_future(ml.roll_over())
    await hold.reached()
    assert LedgerState.CREATING_LEDGER is ml.state
    append(ml, b"1")
    hold.release()
    await rolling
    await store.flush()
    assert ([1, 1], LedgerState.LEDGER_OPENED) == (counts(ml), ml.state)


async def test_a_failed_rollover_fails_later_appends_in_order(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    hold = engine.hold_next("commit")
    adding = asyncio.ensure_future(add_all(ml, numbers(0, 9)))
    await hold.reached()
    hold.fail()
    positions = await adding
    assert positions == sorted(positions)
    assert numbers(0, 9) == await all_of(ml)
    assert [4, 4, 2] == counts(ml)


# While nothing can be written


async def test_nothing_rolls_while_the_storage_fails(
    store: LedgerStore, clock: ManualClock, engine: FaultyEngine
) -> None:
    """Metadata and entries have one order: in an outage neither is stored, later both are."""
    ml = await opened(store, max_entries_per_ledger=2)
    await ml.add_entry(b"0")
    before = ml.ledgers
    for _ in range(20):
        engine.fail_next("commit")
        append(ml, b"lost")
        await store.flush()
        assert (before, [b"0"]) == (ml.ledgers, await all_of(ml))
    await add_all(ml, numbers(1, 2))
    assert [1, 2, 0] == counts(ml), "the ledger of the outage is closed, once"


async def test_an_empty_ledger_that_lost_its_appends_leaves_the_list(
    store: LedgerStore, engine: FaultyEngine
) -> None:
    ml = await opened(store)
    engine.fail_next("commit")
    lost = append(ml, b"lost")
    await store.flush()
    position = await ml.add_entry(b"0")
    assert (1, True) == (len(ml.ledgers), lost < position)
    assert lost.ledger_id != position.ledger_id
    assert [b"0"] == await all_of(ml)
    again = await opened(store)
    assert [b"0"] == await all_of(again)


async def test_a_failed_rollover_by_age_is_retried_soon(
    store: LedgerStore, clock: ManualClock, engine: FaultyEngine
) -> None:
    """Regression: the retry was a whole age later: four hours, or the seven days of segment.ms."""
    ml = await opened(store, max_rollover_ms=3_600_000)
    await ml.add_entry(b"0")
    await ml.add_entry(b"1")
    for _ in range(3):
        engine.fail_next("commit")
    commits = engine.calls["commit"]
    await settled(clock, 3_800_000)
    await store.flush()
    for attempts in (1, 2, 3):
        assert (commits + attempts, [2]) == (engine.calls["commit"], counts(ml))
        await settled(clock, RETRY_MS - 1)
        await store.flush()
        assert commits + attempts == engine.calls["commit"], "it does not try without a pause"
        await settled(clock, 1)
        await store.flush()
    assert [2, 0] == counts(ml)


async def test_new_limits_hold_for_the_open_ledger(store: LedgerStore, clock: ManualClock) -> None:
    ml = await opened(store)
    await add_all(ml, [bytes(10)] * 5)
    ml.reconfigure(ManagedLedgerConfig(max_bytes_per_ledger=20))
    assert [5] == counts(ml)
    await ml.add_entry(b"x")
    assert [6, 0] == counts(ml), "the next append finds it full"
    ml.reconfigure(FOREVER)
    await add_all(ml, [bytes(10)] * 5)
    clock.advance(5000)
    ml.reconfigure(ManagedLedgerConfig(max_rollover_ms=4000))
    await settled(clock)
    await store.flush()
    assert [6, 5, 0] == counts(ml), "it is older than that already"
    assert [b"x", *[bytes(10)] * 5] == [e.data for e in (await ml.read_entries(EARLIEST, 99))[5:]]
