"""Which reads run, wait or are refused."""

import asyncio

import pytest

from kledger.ledger.errors import TooManyRequests
from kledger.ledger.read_limiter import ReadLimiter
from kledger.ledger.testing import ManualClock
from tests.ledger.words import settled


async def waiting(limiter: ReadLimiter, *sizes: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.ensure_future(limiter.enter(size)) for size in sizes]
    await settled(ManualClock())
    return tasks


async def test_what_does_not_fit_waits_in_order() -> None:
    limiter = ReadLimiter(10, 10)
    await limiter.enter(6)
    large, small = await waiting(limiter, 5, 1)
    assert [False, False] == [large.done(), small.done()], "no read overtakes another"
    limiter.leave(6)
    await asyncio.gather(large, small)
    assert 6 == limiter.in_flight_bytes


async def test_a_read_larger_than_the_limit_runs_alone() -> None:
    limiter = ReadLimiter(10, 10)
    await limiter.enter(50)
    (other,) = await waiting(limiter, 1)
    assert not other.done()
    limiter.leave(50)
    await other


async def test_beyond_the_queue_is_refused() -> None:
    limiter = ReadLimiter(10, 1)
    await limiter.enter(10)
    (first,) = await waiting(limiter, 1)
    with pytest.raises(TooManyRequests, match="1 reads of the storage are waiting"):
        await limiter.enter(1)
    limiter.leave(10)
    await first


@pytest.mark.parametrize("is_let_in", [True, False])
async def test_a_cancelled_read_leaves_no_trace(is_let_in: bool) -> None:
    limiter = ReadLimiter(10, 10)
    await limiter.enter(10)
    cancelled, next_one = await waiting(limiter, 10, 10)
    if is_let_in:  # in the same tick, before the task runs
        limiter.leave(10)
        cancelled.cancel()
    else:
        cancelled.cancel()
        await settled(ManualClock())
        limiter.leave(10)
    await next_one
    assert 10 == limiter.in_flight_bytes
    assert cancelled.cancelled()
