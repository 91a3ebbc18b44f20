"""A closed handle is freed at once, also if it was offloaded, or was being offloaded."""

import asyncio

from kledger.ledger import EARLIEST, LedgerStore
from kledger.ledger.testing import MemoryTier
from tests.freed import without_collection
from tests.ledger.offload.words import five, offload_all


async def woken() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_handle_that_was_offloaded_is_freed(store: LedgerStore, tier: MemoryTier) -> None:
    with without_collection() as freed:
        ml = await five(store, tier, deletion_lag_ms=0)
        freed.watch(ml=ml)
        await offload_all(ml)
        await ml.delete_primaries([ml.ledgers[0].ledger_id])
        await ml.read_entries(EARLIEST, 9)
        await ml.close()
        del ml
        await woken()
        assert [] == freed.left()


async def test_a_handle_that_is_offloaded_is_freed(store: LedgerStore, tier: MemoryTier) -> None:
    with without_collection() as freed:
        ml = await five(store, tier)
        freed.watch(ml=ml)
        hold = tier.hold_next("offload")
        running = asyncio.ensure_future(offload_all(ml))
        await hold.reached()
        await ml.close()
        await asyncio.wait([running])
        running.exception()
        del ml, running, hold
        await woken()
        assert [] == freed.left()
