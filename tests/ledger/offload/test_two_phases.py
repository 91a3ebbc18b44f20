"""Two-phase + uuid: a crash at any point leaves the old or the new state; a retry cleans up."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kledger.ledger import (
    Fenced,
    LedgerStore,
    ManagedLedger,
    OffloadInProgress,
    StorageFailed,
    TierUnavailable,
)
from kledger.ledger.offload.copy_deletions import LATE_WRITES_MS
from kledger.ledger.testing import FaultyEngine, ManualClock, MemoryTier, MemoryTiers
from tests.ledger.offload.words import (
    COLD_STORE,
    five,
    offload_all,
    offloaded,
    pending,
    read_all,
    reads,
    tiered,
    until,
)
from tests.ledger.words import OpenStore, numbers


async def test_two_phases_name_an_attempt_before_anything_is_copied(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine
) -> None:
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    running = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    attempt = ml.ledgers[0].offload
    assert attempt is not None
    assert (False, "memory", tier.location) == (
        attempt.is_complete, attempt.driver, attempt.location
    )  # fmt: skip
    assert not ml.ledgers[0].offloaded
    assert 1 == pending(engine)
    assert numbers(0, 4) == await read_all(ml)
    assert (0, 5, 0) == reads(ml), "an attempt that is not complete is never read"
    hold.release()
    await running
    assert [(ml.ledgers[0].ledger_id, attempt.attempt)] == list(tier.copies)[:1]
    assert 0 == pending(engine)


async def test_two_phases_a_failed_copy_is_deleted_and_a_retry_completes(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    tier.fail_next("offload")
    tier.lose_answer_of_next("offload")
    with pytest.raises(TierUnavailable):
        await offload_all(ml)
    await until(clock, lambda: not tier.copies)
    await offload_all(ml)
    assert [True, True, False] == offloaded(ml)
    await until(clock, lambda: not pending(engine))
    assert 2 == len(tier.copies)
    assert numbers(0, 4) == await read_all(ml)


async def test_two_phases_what_a_broken_attempt_writes_late_is_deleted(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    running = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    (key,) = tier.copies
    running.cancel()
    await until(clock, lambda: not tier.copies)
    tier.copies[key] = [b"late"]
    assert 1 == pending(engine)
    await until(clock, lambda: not tier.copies and not pending(engine))


Crash = Callable[[FaultyEngine, MemoryTier], Awaitable[object]]


async def before_the_attempt_is_named(engine: FaultyEngine, tier: MemoryTier) -> None:
    hold = engine.hold_next("commit")
    await hold.reached()


async def while_it_is_copied(engine: FaultyEngine, tier: MemoryTier) -> None:
    await tier.hold_next("offload").reached()


async def before_it_is_complete(engine: FaultyEngine, tier: MemoryTier) -> None:
    engine.delay_next("commit", 0)  # the attempt is named
    await engine.hold_next("commit").reached()


@pytest.mark.parametrize(
    "crash", [before_the_attempt_is_named, while_it_is_copied, before_it_is_complete]
)
async def test_two_phases_a_crash_leaves_the_old_state_and_the_objects_go(
    open_store: OpenStore,
    engine: FaultyEngine,
    tier: MemoryTier,
    clock: ManualClock,
    crash: Crash,
) -> None:
    store = await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))
    ml = await five(store, tier)
    crashed = asyncio.ensure_future(crash(engine, tier))
    await asyncio.sleep(0)
    running = asyncio.ensure_future(offload_all(ml))
    await crashed
    engine.drop_unsynced()
    await asyncio.wait([running])
    store = await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))
    ml = await store.open_managed_ledger("orders", config=tiered(tier))
    assert not any(offloaded(ml))
    await until(clock, lambda: not tier.copies and not pending(engine))
    assert numbers(0, 4) == await read_all(ml)
    await offload_all(ml)
    assert all(offloaded(ml)[:-1])


async def test_two_phases_a_crash_after_the_completion_keeps_the_copy(
    open_store: OpenStore, engine: FaultyEngine, tier: MemoryTier, clock: ManualClock
) -> None:
    store = await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))
    ml = await five(store, tier)
    await offload_all(ml)
    engine.drop_unsynced()
    store = await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))
    ml = await store.open_managed_ledger("orders", config=tiered(tier))
    assert all(offloaded(ml)[:2])
    assert not pending(engine)
    assert numbers(0, 4) == await read_all(ml)
    assert (0, 1, 4) == reads(ml)


async def test_two_phases_the_completion_is_written_again_after_a_failed_write(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    running = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    engine.fail_next("commit")
    hold.release()
    await until(clock, running.done)
    assert [True, True, False] == offloaded(ml)
    assert 2 == tier.calls["offload"], "what was copied stays"


async def test_two_phases_a_completion_that_cannot_be_written_leaves_nothing(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    running = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    for _ in range(3):
        engine.fail_next("commit")
    hold.release()
    await until(clock, running.done)
    assert isinstance(running.exception(), StorageFailed)
    assert [False, True, False] == offloaded(ml)
    await until(clock, lambda: not pending(engine))
    assert [ml.ledgers[1].ledger_id] == tier.ledger_ids


async def test_two_phases_no_object_is_deleted_while_the_outcome_of_its_completion_is_open(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    """The caller is cancelled while the completion is being written: the copy must stay."""
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    running = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    commit = engine.hold_next("commit")
    hold.release()
    await commit.reached()
    running.cancel()
    await asyncio.wait([running])
    for _ in range(50):
        await asyncio.sleep(0)
    assert 1 == len(tier.copies)
    commit.release()
    await until(clock, lambda: ml.ledgers[0].offloaded)
    await until(clock, lambda: not pending(engine))
    assert [ml.ledgers[0].ledger_id] == tier.ledger_ids
    assert numbers(0, 4) == await read_all(ml)


async def test_two_phases_a_sync_that_fails_deletes_nothing(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    """Whether the copy is complete is only known after the next start."""
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    running = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    engine.fail_next("sync")
    hold.release()
    await asyncio.wait([running])
    assert isinstance(running.exception(), Fenced)
    for _ in range(100):
        clock.advance(LATE_WRITES_MS)
        await asyncio.sleep(0)
    assert 1 == len(tier.copies)


async def test_two_phases_an_attempt_that_was_replaced_is_not_completed(
    store: LedgerStore, tier: MemoryTier, clock: ManualClock, engine: FaultyEngine
) -> None:
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    first = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    ml._offloads._run = None  # as if the run had been forgotten
    await offload_all(ml)
    kept = [info.offload.attempt for info in ml.ledgers[:2] if info.offload is not None]
    hold.release()
    await asyncio.wait([first])
    error = first.exception()
    assert error is None or isinstance(error, OffloadInProgress)
    await until(clock, lambda: not pending(engine))
    assert sorted(kept) == sorted(attempt for _, attempt in tier.copies)


async def test_two_phases_a_newer_handle_fences_the_completion_of_an_older_one(
    store: LedgerStore, tier: MemoryTier, clock: ManualClock, engine: FaultyEngine
) -> None:
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    running = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    newer: ManagedLedger = await store.open_managed_ledger("orders", config=tiered(tier))
    hold.release()
    await asyncio.wait([running])
    assert isinstance(running.exception(), Fenced)
    await until(clock, lambda: not pending(engine) and not tier.copies)
    assert not any(offloaded(newer))
    await offload_all(newer)
    assert [info.ledger_id for info in newer.ledgers[:-1]] == tier.ledger_ids
