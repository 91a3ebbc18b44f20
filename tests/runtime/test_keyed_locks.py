"""Locks of keys."""

import asyncio

import pytest

from kledger.runtime.keyed_locks import KeyedLocks


async def test_holders_of_one_key_follow_each_other() -> None:
    locks: KeyedLocks[str] = KeyedLocks()
    steps: list[str] = []

    async def second() -> None:
        async with locks.holding("a"):
            steps.append("second")

    async with asyncio.TaskGroup() as tasks, locks.holding("a"):
        tasks.create_task(second())
        async with locks.holding("b"):
            steps.append("another key")
        settled = tasks.create_task(locks.settle())
        await asyncio.sleep(0)  # both wait now
        assert not settled.done()
        steps.append("first")
    assert ["another key", "first", "second"] == steps


async def test_waiting_for_some_keys_does_not_wait_for_others() -> None:
    locks: KeyedLocks[str] = KeyedLocks()
    async with asyncio.TaskGroup() as tasks, locks.holding("a"):
        await locks.settle(lambda key: key != "a")
        settled = tasks.create_task(locks.settle(lambda key: key == "a"))
        await asyncio.sleep(0)
        assert not settled.done()


async def test_an_unused_key_takes_no_memory() -> None:
    locks: KeyedLocks[int] = KeyedLocks()
    empty = locks._locks.__sizeof__()
    for key in range(100):
        async with locks.holding(key), locks.holding(-key - 1):
            assert (2, True) == (len(locks), key in locks)
    assert (0, False) == (len(locks), 0 in locks)
    assert empty == locks._locks.__sizeof__()


async def test_a_body_that_raises_and_a_waiter_that_is_cancelled_leave_no_lock() -> None:
    locks: KeyedLocks[str] = KeyedLocks()
    waiters: list[asyncio.Task[None]] = []

    async def fail() -> None:
        async with locks.holding("a"):
            waiters.append(asyncio.create_task(locks.settle()))
            await asyncio.sleep(0)  # the waiter waits now
            waiters[0].cancel()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with pytest.raises(asyncio.CancelledError):
        await waiters[0]
    assert 0 == len(locks)
