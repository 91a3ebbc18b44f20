"""Operations end: by timeout, with their client, and when their caller cancels them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kledger.native.client.operations import ClientOperations
from kledger.native.errors import AlreadyClosed, SubscriptionFenced, Timeout
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.native.client_builders import ticks


@asynccontextmanager
async def operations(timeout_ms: int = 100) -> AsyncIterator[tuple[ClientOperations, ManualClock]]:
    supervisor, clock = Supervisor(), ManualClock()
    yield ClientOperations(Timers(clock, supervisor), timeout_ms), clock
    await supervisor.close()


async def wait_in(it: ClientOperations, let_go: list[str] | None = None) -> None:
    async with it.run("seek orders") as operation:
        operation.last_error = lambda: SubscriptionFenced("another client resets it")
        try:
            await asyncio.Event().wait()
        finally:
            if let_go is not None:
                await ticks()
                let_go.append("done")


async def test_timeout_names_the_last_error() -> None:
    async with operations() as (it, clock):
        let_go: list[str] = []
        running = asyncio.ensure_future(wait_in(it, let_go))
        await ticks()
        clock.advance(99)
        await ticks()
        assert not running.done()
        clock.advance(1)
        with pytest.raises(
            Timeout, match=r"seek orders: not done within 100 ms: another client resets it"
        ):
            await running
        assert ["done"] == let_go
        assert not running.cancelled()


async def test_operation_that_is_done_in_time_is_left_alone() -> None:
    async with operations() as (it, clock):
        async with it.run("seek orders"):
            await ticks()
        clock.advance(1_000)
        await ticks()


async def test_error_of_an_operation_is_its_own() -> None:
    async with operations() as (it, _):
        with pytest.raises(SubscriptionFenced):
            async with it.run("seek orders"):
                raise SubscriptionFenced("at once")


async def test_caller_that_cancels_is_cancelled() -> None:
    async with operations() as (it, clock):
        running = asyncio.ensure_future(wait_in(it))
        await ticks()
        running.cancel()
        clock.advance(100)
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_operation_within_another_ends_with_it() -> None:
    async with operations() as (it, clock):

        async def outer() -> None:
            async with it.run("begin anew"):
                await wait_in(it)

        running = asyncio.ensure_future(outer())
        await ticks()
        clock.advance(100)
        with pytest.raises(Timeout, match="begin anew"):
            await running


async def test_closing_ends_running_operations_and_refuses_new_ones() -> None:
    async with operations() as (it, _):
        let_go: list[str] = []
        running = [asyncio.ensure_future(wait_in(it, let_go)) for _ in range(2)]
        await ticks()
        await it.close()
        assert ["done", "done"] == let_go
        for each in running:
            with pytest.raises(AlreadyClosed, match="seek orders: the client was closed"):
                await each
        with pytest.raises(AlreadyClosed):
            await wait_in(it)
        await it.close()
