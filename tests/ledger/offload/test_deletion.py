"""Deletion lag; trim of offloaded: both copies go, and nothing is left in the tier."""

import asyncio
from dataclasses import replace

import pytest

from kledger.ledger import Fenced, LedgerStore, ManagedLedger, Position, TierUnavailable
from kledger.ledger.offload.copy_deletions import DELETE_TIMEOUT_MS, RETRY_MS
from kledger.ledger.testing import FaultyEngine, ManualClock, MemoryTier, MemoryTiers
from tests.ledger.offload.words import (
    COLD_STORE,
    change_policies,
    five,
    offload_all,
    offloaded,
    pending,
    primary_deleted,
    read_all,
    tiered,
    until,
)
from tests.ledger.words import OpenStore, add_all, numbers, settled


async def until_deleted(engine: FaultyEngine, clock: ManualClock) -> None:
    await until(clock, lambda: not pending(engine))


def stored_ids(engine: FaultyEngine) -> list[int]:
    """Ledgers with entries in the storage."""
    return [ledger_id for ledger_id in range(50) if engine.last_entry(ledger_id) >= 0]


async def test_deletion_lag_is_compared_strictly(
    store: LedgerStore, tier: MemoryTier, clock: ManualClock, engine: FaultyEngine
) -> None:
    ml = await five(store, tier, deletion_lag_ms=100)
    first, second, last = (info.ledger_id for info in ml.ledgers)
    await ml.offload_prefix(Position(second, 0))
    clock.advance(100)
    await offload_all(ml)
    assert () == await ml.delete_due_primaries()
    clock.advance(1)
    assert (first,) == await ml.delete_due_primaries()
    assert [True, False, False] == primary_deleted(ml)
    assert [second, last] == stored_ids(engine)
    assert () == await ml.delete_due_primaries()
    assert (second,) == await ml.delete_due_primaries(clock.now_ms() + 100)
    assert [last] == stored_ids(engine)
    assert numbers(0, 4) == await read_all(ml)


async def test_deletion_lag_of_0_deletes_after_a_millisecond(
    store: LedgerStore, tier: MemoryTier, clock: ManualClock
) -> None:
    ml = await five(store, tier, deletion_lag_ms=0)
    await offload_all(ml)
    assert () == await ml.delete_due_primaries()
    clock.advance(1)
    assert 2 == len(await ml.delete_due_primaries())


@pytest.mark.parametrize("lag_ms", [None, -1])
async def test_deletion_lag_none_or_negative_is_never(
    store: LedgerStore, tier: MemoryTier, clock: ManualClock, lag_ms: int | None
) -> None:
    ml = await five(store, tier, deletion_lag_ms=lag_ms)
    await offload_all(ml)
    clock.advance(1 << 40)  # the ledger that is open may be closed because of its age
    assert () == await ml.delete_due_primaries()
    assert not any(primary_deleted(ml))


async def test_deletion_of_primaries_leaves_out_ledgers_without_a_copy(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    first, second, last = (info.ledger_id for info in ml.ledgers)
    await ml.offload_prefix(Position(second, 0))
    assert (first,) == await ml.delete_primaries([first, second, last, 99])
    assert () == await ml.delete_primaries([first, second, last, 99])
    assert numbers(0, 4) == await read_all(ml)


async def test_deletion_of_primaries_survives_a_crash(
    open_store: OpenStore, engine: FaultyEngine, tier: MemoryTier
) -> None:
    store = await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))
    ml = await five(store, tier)
    await offload_all(ml)
    await ml.delete_primaries([ml.ledgers[0].ledger_id])
    engine.drop_unsynced()
    store = await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))
    ml = await store.open_managed_ledger("orders", config=tiered(tier))
    assert [True, False] == primary_deleted(ml)[:2]
    assert numbers(0, 4) == await read_all(ml)


async def test_deletion_of_primaries_that_was_not_stored_changes_nothing(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    before = stored_ids(engine)
    engine.fail_next("commit")
    with pytest.raises(Exception, match="injected"):
        await ml.delete_primaries([ml.ledgers[0].ledger_id])
    assert [False, False, False] == primary_deleted(ml)
    assert before == stored_ids(engine)


async def test_trim_of_offloaded_deletes_both_copies(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    first, second, last = (info.ledger_id for info in ml.ledgers)
    await offload_all(ml)
    await ml.delete_primaries([first])
    await ml.trim_before(Position(second, 0))
    await until_deleted(engine, clock)
    assert [second] == tier.ledger_ids
    assert [second, last] == stored_ids(engine)
    await ml.truncate()
    await until_deleted(engine, clock)
    assert not tier.copies
    assert [last] == stored_ids(engine)
    assert [b"4"] == await read_all(ml)


async def test_trim_of_offloaded_by_retention_deletes_both_copies(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    ml.reconfigure(tiered(tier))
    await ml.trim()
    assert 2 == len(tier.copies)
    ml.reconfigure(replace(ml.config, retention_bytes=0))
    await ml.trim()
    await until_deleted(engine, clock)
    assert not tier.copies


async def test_trim_of_offloaded_while_it_is_copied_leaves_nothing(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    running = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    await ml.truncate()
    assert 1 == pending(engine), "the row of the attempt"
    hold.release()
    await running
    await until_deleted(engine, clock)
    assert not tier.copies


async def test_deleting_a_managed_ledger_deletes_all_copies_and_broken_attempts(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    for _ in range(5):
        tier.fail_next("delete")  # what the broken attempt left stays for now
    tier.fail_next("offload")
    with pytest.raises(TierUnavailable):
        await offload_all(ml)
    assert 2 == len(tier.copies)
    hold = tier.hold_next("offload")
    running = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    await store.delete_managed_ledger("orders")
    await asyncio.wait([running])
    assert isinstance(running.exception(), Fenced)
    await until_deleted(engine, clock)
    assert not tier.copies
    assert not stored_ids(engine)


async def test_deleting_leaves_what_a_managed_ledger_of_the_same_name_made_anew(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    tier.is_down = True
    await store.delete_managed_ledger("orders")
    await settled(clock, RETRY_MS)
    assert 2 == pending(engine)
    tier.is_down = False
    ml = await five(store, tier)
    await offload_all(ml)
    kept = {info.offload.attempt for info in ml.ledgers if info.offload is not None}
    await until_deleted(engine, clock)
    assert kept == {attempt for _, attempt in tier.copies}
    assert numbers(0, 4) == await read_all(ml)


async def test_deletions_in_the_tier_survive_a_restart_and_a_tier_that_is_down(
    open_store: OpenStore, engine: FaultyEngine, tier: MemoryTier, clock: ManualClock
) -> None:
    store = await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))
    ml = await five(store, tier)
    await offload_all(ml)
    tier.is_down = True
    await ml.truncate()
    for _ in range(5):
        await settled(clock, RETRY_MS)
    assert 2 == pending(engine)
    await store.close()
    store = await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))
    for _ in range(5):
        await settled(clock, RETRY_MS)
    tier.is_down = False
    await until_deleted(engine, clock)
    assert not tier.copies


async def test_deletions_in_the_tier_are_repeated_when_the_answer_is_lost_or_late(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    tier.lose_answer_of_next("delete")
    hold = tier.hold_next("delete")
    await ml.truncate()
    await hold.reached()
    await until(clock, lambda: tier.calls["delete"] > 1)
    assert clock.now_ms() >= 1_000_000 + DELETE_TIMEOUT_MS
    await until_deleted(engine, clock)
    assert not tier.copies


async def test_deletions_in_the_tier_go_in_pages(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    ml = await store.open_managed_ledger("orders", config=tiered(tier))
    await add_all(ml, numbers(0, 299))
    await offload_all(ml)
    assert 149 <= len(tier.copies)
    await ml.truncate()
    await until_deleted(engine, clock)
    assert not tier.copies


async def test_a_changed_lag_holds_at_once(
    store: LedgerStore, tier: MemoryTier, clock: ManualClock
) -> None:
    ml: ManagedLedger = await five(store, tier)
    await offload_all(ml)
    clock.advance(50)
    assert () == await ml.delete_due_primaries()
    change_policies(ml, deletion_lag_ms=49)
    assert 2 == len(await ml.delete_due_primaries())
    assert [True, True, False] == offloaded(ml)
