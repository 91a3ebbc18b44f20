"""No wake-up is lost and no waiter takes another one down."""

import asyncio

import pytest

from kledger.runtime.signal import Signal


async def tick() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_notify_wakes_every_waiter() -> None:
    signal = Signal()
    waits = [asyncio.ensure_future(signal.wait()) for _ in range(3)]
    await tick()
    assert 3 == signal.waiter_count
    signal.notify()
    await asyncio.gather(*waits)
    assert 0 == signal.waiter_count


async def test_waiters_are_woken_in_order() -> None:
    """A set of futures had the order of their addresses, another one in every process."""
    signal, woken = Signal(), list[int]()

    async def wait(number: int) -> None:
        await signal.wait()
        woken.append(number)

    waits = [asyncio.ensure_future(wait(number)) for number in range(50)]
    await tick()
    signal.notify()
    await asyncio.gather(*waits)
    assert list(range(50)) == woken


async def test_wait_beyond_an_old_version_returns_at_once() -> None:
    """The change that came between looking and waiting is the one that gets lost elsewhere."""
    signal = Signal()
    seen = signal.version
    signal.notify()
    assert 1 == await signal.wait_beyond(seen)


async def test_wait_from_now_ignores_earlier_changes() -> None:
    signal = Signal()
    signal.notify()
    wait = asyncio.ensure_future(signal.wait())
    await tick()
    assert not wait.done()
    signal.notify()
    await wait


async def test_cancelled_waiter_leaves_the_others_waiting() -> None:
    signal = Signal()
    first, second = (asyncio.ensure_future(signal.wait()) for _ in range(2))
    await tick()
    first.cancel()
    await tick()
    assert 1 == signal.waiter_count
    signal.notify()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_waiter_cancelled_after_notify_is_harmless() -> None:
    signal = Signal()
    wait = asyncio.ensure_future(signal.wait())
    await tick()
    wait.cancel()
    signal.notify()
    await tick()
    assert wait.cancelled()
