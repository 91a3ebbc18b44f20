"""Steps at the same time: two both end, whatever ends them; of many, some run at a time."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest

from kledger.runtime.concurrent_work import run_both, run_some_at_a_time, run_until


class Step:
    """A step that waits until it is released, and then returns or raises."""

    def __init__(self, error: Exception | None = None, *, cancels_needed: int = 1) -> None:
        self.release = asyncio.Event()
        self.events: list[str] = []
        self._error = error
        self._cancels_needed = cancels_needed

    async def run(self) -> str:
        self.events.append("begun")
        while True:
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.events.append("cancelled")
                if self.events.count("cancelled") >= self._cancels_needed:
                    raise
            else:
                break
        if self._error is not None:
            raise self._error
        self.events.append("ended")
        return "result"


async def ticks(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def started(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.ensure_future(work)


@pytest.mark.parametrize("is_first_sooner", [False, True])
async def test_both_run_at_once_and_both_results_come_in_their_order(
    *, is_first_sooner: bool
) -> None:
    first, second = Step(), Step()

    async def two() -> int:
        await second.run()
        return 2

    both = started(run_both(first.run(), two()))
    await ticks()
    assert ["begun"] == first.events == second.events
    sooner, later = (first, second) if is_first_sooner else (second, first)
    sooner.release.set()
    await ticks()
    assert not both.done()
    later.release.set()
    assert ("result", 2) == await both


@pytest.mark.parametrize("is_first", [False, True])
async def test_an_error_cancels_the_other_step_and_is_raised_when_that_has_ended(
    *, is_first: bool
) -> None:
    failing, other = Step(ValueError("no")), Step(cancels_needed=2)
    steps = (failing, other) if is_first else (other, failing)
    both = started(run_both(*(each.run() for each in steps)))
    await ticks()
    failing.release.set()
    await ticks()
    assert ["begun", "cancelled"] == other.events
    assert not both.done()
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both
    assert ["begun", "cancelled", "cancelled"] == other.events


async def test_an_error_is_raised_itself() -> None:
    failing, other = Step(ValueError("no")), Step()
    failing.release.set()
    with pytest.raises(ValueError, match="no"):
        await run_both(other.run(), failing.run())
    assert ["begun", "cancelled"] == other.events


async def test_a_caller_that_is_cancelled_cancels_both_and_waits_for_them() -> None:
    first, second = Step(), Step(cancels_needed=3)
    both = started(run_both(first.run(), second.run()))
    await ticks()
    for _ in range(3):
        assert not both.done()
        both.cancel()
        await ticks()
    assert both.cancelled()
    assert ["begun", "cancelled"] == first.events
    assert 3 == second.events.count("cancelled")


async def test_a_cancelled_caller_is_cancelled_although_a_step_raises_then() -> None:
    """And what the step raises is not reported as an exception that was never retrieved."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def fail_when_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("no")

    both = started(run_both(Step().run(), fail_when_cancelled()))
    await ticks()
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both
    del both
    gc.collect()
    assert [] == reported


async def test_a_step_that_was_cancelled_by_others_cancels_the_caller() -> None:
    async def cancel_itself() -> None:
        raise asyncio.CancelledError

    other = Step()
    other.release.set()
    with pytest.raises(asyncio.CancelledError):
        await run_both(cancel_itself(), other.run())


@pytest.mark.parametrize("is_end_first", [False, True])
async def test_what_ends_first_ends_the_other_and_its_result_is_returned(
    *, is_end_first: bool
) -> None:
    work, end = Step(), Step(cancels_needed=2)
    sooner, later = (end, work) if is_end_first else (work, end)
    ran = started(run_until(work.run(), end.run()))
    await ticks()
    sooner.release.set()
    if later is end:
        await ticks()
        assert not ran.done(), "it returns before the other one has ended"
        later.release.set()
    assert "result" == await ran
    assert "cancelled" in later.events


async def test_what_work_raises_while_it_is_ended_is_raised() -> None:
    async def work() -> str:
        try:
            return await Step().run()
        finally:
            raise ValueError("not closed")

    end = Step()
    end.release.set()
    with pytest.raises(ValueError, match="not closed"):
        await run_until(work(), end.run())


async def test_some_run_at_a_time_and_all_return_in_order() -> None:
    running, most = 0, 0

    async def double(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return 2 * number

    assert [0, 2, 4, 6, 8] == await run_some_at_a_time(double, range(5), 2)
    assert 2 == most


async def test_after_a_failure_no_more_begin() -> None:
    begun: list[int] = []

    async def fail_at_one(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise ValueError("one")

    with pytest.raises(ValueError, match="one"):
        await run_some_at_a_time(fail_at_one, range(6), 2)
    assert [0, 1] == begun
