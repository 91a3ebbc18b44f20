"""What may stay on the loop, and what goes to the pool."""

import asyncio
import threading

import pytest

from kledger.runtime.blocking import BlockingPool, InlinePool, PoolClosed
from kledger.runtime.compute_pool import ComputePool


async def test_calls_of_one_tick_share_an_allowance() -> None:
    calls = ComputePool(InlinePool(), cost_per_tick_max=10)
    assert [True, True, False, True] == [calls.fits_in_tick(each) for each in (4, 4, 3, 2)]
    assert not calls.fits_in_tick(1)
    await asyncio.sleep(0)
    assert not calls.fits_in_tick(11)
    assert calls.fits_in_tick(10)


async def test_a_call_runs_in_the_pool_and_ends_when_that_is_closed() -> None:
    """A walk over millions of records must not keep a server from stopping."""
    calls = ComputePool(BlockingPool(1), cost_per_tick_max=0)
    has_begun = threading.Event()

    def endless() -> None:
        while True:
            has_begun.set()
            calls.yield_gil()

    running = asyncio.ensure_future(calls.run(endless))
    await asyncio.to_thread(has_begun.wait, 60)
    calls.close()
    with pytest.raises(PoolClosed):
        await running
    with pytest.raises(PoolClosed):
        await calls.run(endless)
