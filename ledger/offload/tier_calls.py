"""Tier calls: every call of a tier passes here, so that a tier that hangs or errs does no harm.

Rule: a call ends for its caller when the tier answered, when its time is over, or when the caller
is cancelled; a call that hangs is cancelled and not waited for. What it returns afterwards is
dropped. Errors that no tier should raise become TierUnavailable, as a retry may succeed.
Must not know: what is called.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias, TypeVar

from kledger.ledger.errors import AlreadyClosed, LedgerError, TierUnavailable
from kledger.runtime.clock import Clock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import TimerHandle, Timers

Result = TypeVar("Result")
Work: TypeAlias = Callable[[], Awaitable[Result]]


class TierCalls:
    """The calls of the tiers of one store."""

    def __init__(self, clock: Clock, timers: Timers, supervisor: Supervisor) -> None:
        """Args: timers: of that clock."""
        self._clock = clock
        self._timers = timers
        self._supervisor = supervisor

    def start(self, work: Work[Result], what: str) -> asyncio.Task[tuple[Result] | LedgerError]:
        """Begin a call; the task returns its result in a tuple, or its error.

        Raises:
            AlreadyClosed: the store is closed.
        """
        if self._supervisor.is_closed:
            raise AlreadyClosed("the store is closed")
        return self._supervisor.spawn(outcome_of(partial(_translated, work, what)), what)

    def start_unattended(self, work: Work[object], what: str, *, timeout_ms: int) -> None:
        """Begin a call whose outcome nobody needs, unless the store is closed."""
        if self._supervisor.is_closed:
            return
        task = self.start(work, what)

        def cancel() -> None:
            task.cancel()

        timer = self._timers.call_after(timeout_ms, cancel)
        task.add_done_callback(lambda _: timer.cancel())

    async def call(
        self,
        work: Work[Result],
        what: str,
        *,
        timeout_ms: int | None,
        release_late: Callable[[Result], object] | None = None,
    ) -> Result:
        """Make a call.

        Args:
            work: makes it.
            what: it is, for errors and tasks.
            timeout_ms: how long it may take; None: as long as the caller waits.
            release_late: called with what it returns after the caller has gone.

        Raises:
            TierUnavailable: the tier did not answer in time, or not as it should.
            AlreadyClosed: the store is closed, or the call was cancelled from elsewhere.
            LedgerError: of the call.
        """
        task = self.start(work, what)
        try:
            return await self.result_of(task, what, timeout_ms=timeout_ms)
        finally:
            if release_late is not None and not task.done():
                task.add_done_callback(partial(_release, release_late))

    async def result_of(
        self,
        task: asyncio.Task[tuple[Result] | LedgerError],
        what: str,
        *,
        timeout_ms: int | None = None,
        last_active_ms: Callable[[], int] | None = None,
    ) -> Result:
        """Wait for a call that was begun.

        Args:
            task: of the call.
            what: it is, for errors.
            timeout_ms: how long it may take; None: as long as the caller waits.
            last_active_ms: when the tier has last asked for something, by the monotonic clock; the
                time counts from there.

        Raises:
            LedgerError: see `call`.
        """
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer: TimerHandle | None = None

        def end(_: object = None) -> None:
            if not ended.done():
                ended.set_result(None)

        def end_if_idle() -> None:
            nonlocal timer
            idle_ms = 0 if last_active_ms is None else self._clock.monotonic_ms() - last_active_ms()
            if last_active_ms is None or timeout_ms is None or idle_ms >= timeout_ms:
                end()
            else:
                timer = self._timers.call_after(timeout_ms - idle_ms, end_if_idle)

        task.add_done_callback(end)
        if timeout_ms is not None:
            timer = self._timers.call_after(timeout_ms, end_if_idle)
        try:
            await ended
        finally:
            if timer is not None:
                timer.cancel()
            if not task.done():
                task.cancel()
        if not task.done():
            raise TierUnavailable(f"{what}: no answer within {timeout_ms} ms", timed_out=True)
        if task.cancelled():
            raise AlreadyClosed(f"{what}: was cancelled")
        outcome = task.result()
        if isinstance(outcome, LedgerError):
            raise outcome
        return outcome[0]


def _release(
    release: Callable[[Result], object], task: "asyncio.Task[tuple[Result] | LedgerError]"
) -> None:
    if not task.cancelled() and isinstance(outcome := task.result(), tuple):
        release(outcome[0])


async def outcome_of(work: Work[Result]) -> tuple[Result] | LedgerError:
    """Return the result of `work` in a tuple, or its error."""
    try:
        return (await work(),)
    except LedgerError as error:
        return error


async def _translated(work: Work[Result], what: str) -> Result:
    try:
        return await work()
    except LedgerError:
        raise
    except Exception as error:  # a tier may be anyone's code
        raise TierUnavailable(f"{what}: {error!r}") from error
