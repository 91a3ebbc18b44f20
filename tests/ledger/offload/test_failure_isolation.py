"""Failure isolation: a tier that is down or hangs affects neither appends nor other reads."""

import asyncio

import pytest

from kledger.ledger import EARLIEST, AlreadyClosed, LedgerStore, TooManyRequests
from kledger.ledger.offload import copy_reads
from kledger.ledger.testing import FaultyEngine, ManualClock, MemoryTier
from tests.ledger.offload.words import five, offload_all, open_position, pending, reads, until
from tests.ledger.words import datas, numbers


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
