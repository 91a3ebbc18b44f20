"""Failure isolation: a tier that is down or hangs affects neither appends nor other reads."""

import asyncio
from collections.abc import Mapping
from uuid import UUID

import pytest

from kledger.ledger import (
    EARLIEST,
    AlreadyClosed,
    LedgerStore,
    OffloadSource,
    Position,
    StoreConfig,
    TierUnavailable,
    TooManyRequests,
)
from kledger.ledger.handle.offloads import COPY_IDLE_MS
from kledger.ledger.offload import copy_reads
from kledger.ledger.testing import FaultyEngine, ManualClock, MemoryTier, MemoryTiers
from tests.ledger.offload.words import (
    COLD_STORE,
    five,
    offload_all,
    offloaded,
    open_position,
    pending,
    reads,
    until,
)
from tests.ledger.words import OpenStore, datas, numbers, settled


async def test_failure_isolation_appends_tail_reads_and_primary_reads_go_on_while_a_tier_hangs(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    copying = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    assert numbers(0, 3) == datas(await ml.read_entries(EARLIEST, 4))
    position = await ml.add_entry(b"5")
    assert b"5" == (await ml.read_entry(position)).data
    await ml.roll_over()
    hold.release()
    await copying
    holds = [tier.hold_next("open") for _ in range(copy_reads.READS_MAX)]
    waiting = [asyncio.ensure_future(ml.read_entries(EARLIEST, 1)) for _ in range(2 * len(holds))]
    await holds[-1].reached()
    assert (0, 5, 0) == reads(ml)
    await ml.add_entry(b"6")
    assert b"5" == (await ml.read_entry(position)).data
    assert b"6" == (await ml.read_entry(open_position(ml))).data
    for each in holds:
        each.release()
    assert [[b"0"]] * len(waiting) == [datas(each) for each in await asyncio.gather(*waiting)]


async def test_failure_isolation_closing_does_not_wait_for_a_tier_that_hangs(
    store: LedgerStore, tier: MemoryTier, clock: ManualClock, engine: FaultyEngine
) -> None:
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    copying = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    await ml.close()
    await asyncio.wait([copying])
    with pytest.raises(AlreadyClosed, match="orders"):
        copying.result()
    await until(clock, lambda: not pending(engine) and not tier.copies)


async def test_failure_isolation_the_store_closes_while_a_tier_hangs(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    await ml.offload_prefix(open_position(ml))
    await ml.truncate()
    holds = [tier.hold_next("delete")]
    await ml.roll_over()
    holds.append(tier.hold_next("offload"))
    copying = asyncio.ensure_future(offload_all(ml))
    for hold in holds:
        await hold.reached()
    await store.close()
    await asyncio.wait([copying])
    assert isinstance(copying.exception(), AlreadyClosed)


async def test_failure_isolation_reads_that_wait_for_the_tier_are_limited(
    store: LedgerStore, tier: MemoryTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_reads, "READS_WAITING_MAX", 3)
    ml = await five(store, tier)
    await offload_all(ml)
    await ml.delete_primaries([ml.ledgers[0].ledger_id])
    hold = tier.hold_next("open")
    waiting = [asyncio.ensure_future(ml.read_entries(EARLIEST, 1)) for _ in range(3)]
    await hold.reached()
    with pytest.raises(TooManyRequests, match="3 reads of the tier"):
        await ml.read_entries(EARLIEST, 1)
    hold.release()
    await asyncio.gather(*waiting)


async def test_failure_isolation_a_read_that_is_cancelled_ends_the_call_of_the_tier(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    hold = tier.hold_next("open")
    reading = asyncio.ensure_future(ml.read_entries(EARLIEST, 1))
    await hold.reached()
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert [b"0"] == datas(await ml.read_entries(EARLIEST, 1))


# Calls that hang, and go on after their cancellation


async def test_failure_isolation_a_copy_that_hangs_ends_in_time_and_frees_its_slot(
    open_store: OpenStore, engine: FaultyEngine, tier: MemoryTier, clock: ManualClock
) -> None:
    """The attempt that comes back later completes nothing, and its objects go."""
    config = StoreConfig(cache_bytes=0, offload_parallel=1)
    store = await open_store(engine=engine, config=config, offloaders=MemoryTiers(tier))
    ml, other = await five(store, tier), await five(store, tier, name="other")
    hold = tier.hold_next("offload", is_stubborn=True)
    copying = asyncio.ensure_future(ml.offload_prefix(Position(ml.ledgers[1].ledger_id, 0)))
    await hold.reached()
    await settled(clock, COPY_IDLE_MS - 1)
    assert not copying.done()
    await settled(clock, 1)
    with pytest.raises(TierUnavailable, match=f"no answer within {COPY_IDLE_MS} ms"):
        await copying
    await offload_all(other)
    assert [True, True, False] == offloaded(other)
    kept = len(tier.copies)
    hold.release()
    await until(clock, lambda: pending(engine) == 0)
    assert [False, False, False] == offloaded(ml)
    assert kept - 1 == len(tier.copies)
    await offload_all(ml)
    assert [True, True, False] == offloaded(ml)


class SlowTier(MemoryTier):
    """Needs almost as long for each entry as a copy may be idle."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    async def offload(
        self, source: OffloadSource, attempt: UUID, location: Mapping[str, str]
    ) -> None:
        for entry in range(source.entries):
            await source.read(entry, bytes_max=1)
            await self._clock.sleep(COPY_IDLE_MS - 1)
        await super().offload(source, attempt, location)


async def test_failure_isolation_a_copy_that_goes_on_may_take_long(
    open_store: OpenStore, clock: ManualClock
) -> None:
    tier = SlowTier(clock)
    store = await open_store(config=COLD_STORE, offloaders=MemoryTiers(tier))
    ml = await five(store, tier)
    copying = asyncio.ensure_future(offload_all(ml))
    await until(clock, copying.done)
    assert [True, True, False] == offloaded(ml)


async def test_failure_isolation_reads_that_hang_free_their_slots(
    store: LedgerStore, tier: MemoryTier, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    await ml.delete_primaries([info.ledger_id for info in ml.ledgers])
    holds = [tier.hold_next("open", is_stubborn=True) for _ in range(copy_reads.READS_MAX)]
    waiting = [asyncio.ensure_future(ml.read_entries(EARLIEST, 1)) for _ in holds]
    await holds[-1].reached()
    await settled(clock, copy_reads.READ_TIMEOUT_MS)
    await asyncio.wait(waiting)
    assert all(isinstance(each.exception(), TierUnavailable) for each in waiting)
    assert [b"0", b"1"] == datas(await ml.read_entries(EARLIEST, 2))
    for each in holds:
        each.release()
    await until(clock, lambda: tier.open_count == 1)


async def test_failure_isolation_a_close_that_hangs_ends_in_time(
    store: LedgerStore, tier: MemoryTier, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    assert [b"0"] == datas(await ml.read_entries(EARLIEST, 1))
    hold = tier.hold_next("close")
    await ml.truncate()
    await hold.reached()
    assert is_closing()
    clock.advance(copy_reads.CLOSE_TIMEOUT_MS)
    await until(clock, lambda: not is_closing())


def is_closing() -> bool:
    """Return whether the release of a copy is under way."""
    return "closing a copy" in {each.get_name() for each in asyncio.all_tasks()}
