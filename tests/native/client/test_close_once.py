"""Closed once, to its end."""

import asyncio

import pytest

from kledger.native.client.close_once import CloseOnce, ClosesOnExit
from tests.native.client_builders import rig, ticks


class Work:
    def __init__(self, error: Exception | None = None) -> None:
        self.hold = asyncio.Event()
        self.begun = self.on_ended = 0
        self._error = error

    async def __call__(self) -> None:
        self.begun += 1
        await self.hold.wait()
        self.on_ended += 1
        if self._error is not None:
            raise self._error


async def test_all_wait_for_the_same_end() -> None:
    async with rig() as rig_:
        closing, work = CloseOnce(rig_.services.supervisor, "it"), Work()
        assert not closing.has_begun
        tasks = [asyncio.ensure_future(closing.run(work)) for _ in range(3)]
        await ticks()
        assert (True, 1) == (closing.has_begun, work.begun)
        assert not any(each.done() for each in tasks)
        work.hold.set()
        await asyncio.gather(*tasks)
        await closing.run(work)
        assert (1, 1) == (work.begun, work.on_ended)


async def test_cancelled_caller_does_not_interrupt_the_closing() -> None:
    async with rig() as rig_:
        closing, work = CloseOnce(rig_.services.supervisor, "it"), Work()
        first, second = [asyncio.ensure_future(closing.run(work)) for _ in range(2)]
        await ticks()
        first.cancel()
        second.cancel()
        await ticks()
        third = asyncio.ensure_future(closing.run(work))
        work.hold.set()
        await third
        assert 1 == work.on_ended


async def test_first_caller_gets_the_error() -> None:
    async with rig() as rig_:
        closing, work = CloseOnce(rig_.services.supervisor, "it"), Work(ValueError("no"))
        work.hold.set()
        with pytest.raises(ValueError, match="no"):
            await closing.run(work)
        await closing.run(work)


class Counted(ClosesOnExit):
    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


async def test_leaving_closes_also_after_an_error() -> None:
    counted = Counted()
    async with counted as entered:
        assert (counted, 0) == (entered, counted.closed)
    with pytest.raises(ValueError, match="no"):
        async with counted:
            raise ValueError("no")
    assert 2 == counted.closed
