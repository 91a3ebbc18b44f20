"""Limits of reads from a tier."""

import asyncio

import pytest

from kledger.ledger import EARLIEST, InvalidArgument, StoreConfig, TierUnavailable
from kledger.ledger.testing import ManualClock, MemoryTier
from tests.ledger.offload.words import five, offload_all
from tests.ledger.words import OpenStore, datas, settled


async def test_bytes_that_are_read_at_once_are_limited(
    open_store: OpenStore, clock: ManualClock
) -> None:
    """A read waits for room, however much it wants, and one that is too large is alone."""
    tier = MemoryTier()
    store = await open_store(config=StoreConfig(cache_bytes=0, offload_read_bytes_max=1))
    ml = await five(store, tier)
    await offload_all(ml)
    before, held = tier.calls["read"], tier.hold_next("read")
    both = [asyncio.ensure_future(ml.read_entries(EARLIEST, 1)) for _ in range(2)]
    await held.reached()
    await settled(clock)
    assert before + 1 == tier.calls["read"]
    held.release()
    assert [[b"0"], [b"0"]] == [datas(each) for each in await asyncio.gather(*both)]


async def test_time_of_a_read_is_a_setting(open_store: OpenStore, clock: ManualClock) -> None:
    tier = MemoryTier()
    store = await open_store(config=StoreConfig(cache_bytes=0, offload_read_timeout_ms=50))
    ml = await five(store, tier)
    await offload_all(ml)
    await ml.delete_primaries([ml.ledgers[0].ledger_id])
    hold = tier.hold_next("read")
    reading = asyncio.ensure_future(ml.read_entries(EARLIEST, 1))
    await hold.reached()
    await settled(clock, 49)
    assert not reading.done()
    await settled(clock, 1)
    with pytest.raises(TierUnavailable, match="no answer within 50 ms"):
        await reading


@pytest.mark.parametrize("name", ["offload_read_bytes_max", "offload_read_timeout_ms"])
def test_limits_are_checked(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}: expected at least 1, got 0"):
        StoreConfig(**{name: 0})  # type: ignore[arg-type]  # of these fields
