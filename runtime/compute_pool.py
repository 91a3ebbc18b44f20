"""ComputePool: runs long computations off the event loop, and short ones on it.

Rule: the longest computations, which need no objects of this process, run in separate processes,
the others in threads, which share the GIL with the event loop. The cost of a call is an upper limit
that its caller knows in advance, so no field of a request can make it look cheap. Many cheap calls
in one tick block the event loop like a long one: together they may cost no more than one.
Must not know: what is computed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from kledger.runtime.blocking import Arguments, BlockingRunner, Result
from kledger.runtime.compute_process import (
    MEMORY_BYTES_MAX,
    Buffer,
    ComputeProcesses,
    Pause,
    StartFailed,
)
from kledger.runtime.compute_session import ComputeSession, ProcessSession, ThreadSession
from kledger.runtime.switch_interval import SWITCH_INTERVAL

State = TypeVar("State")

logger = logging.getLogger(__name__)


class ComputePool:
    """Threads and processes for long calls alone, and the allowance of each tick."""

    def __init__(
        self,
        pool: BlockingRunner,
        *,
        cost_per_tick_max: int,
        processes: ComputeProcesses | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            pool: makes the calls, or waits for the process that makes them.
            cost_per_tick_max: what calls on the loop may cost, in units of the callers.
            processes: make the calls of `map`; without them the pool does.
        """
        self._pool = pool
        self._processes = processes
        self._cost_per_tick_max = cost_per_tick_max
        self._spent = 0
        self.yield_gil = pool.yield_gil
        """See `BlockingRunner.yield_gil`; for calls that `run` makes."""

    def fits_in_tick(self, cost: int) -> bool:
        """Return whether a call of that cost may run on the loop now; if so, count it."""
        if self._spent + cost > self._cost_per_tick_max:
            return False
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._tick_ended)
        self._spent += cost
        return True

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Make a call in the pool; return or raise what it does. Raises PoolClosed."""
        return await self._pool.run(_in_short_intervals, call, *arguments)

    async def map(
        self,
        call: Callable[[Buffer, *Arguments, Pause], Result],
        jobs: Sequence[tuple[Buffer, *Arguments]],
    ) -> list[Result]:
        """Run one call for each job, in a separate process; return the results in order.

        Args:
            call: a function of a module that is cheap to load; its last argument is the pause
                that it makes every few tenths of a millisecond.
            jobs: for each call its data, which must not change meanwhile, and small arguments.

        Raises:
            PoolClosed: the pool was closed.
            ComputeProcessDied: the process ended during the call; a retry may succeed.
            Exception: what the call raises.
        """
        if self._processes is not None:
            loop = asyncio.get_running_loop()
            try:
                return await self._pool.run(self._processes.map, call, jobs, loop)
            except StartFailed as error:
                self._continue_without_processes(error)
        return await self.run(_map, call, jobs, self.yield_gil)

    @asynccontextmanager
    async def session(
        self,
        make_state: Callable[[*Arguments], State],
        *arguments: *Arguments,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
    ) -> AsyncIterator[ComputeSession[State]]:
        """Make a state in a separate process, which ends with the block.

        Args:
            make_state: a function or class of a module; makes the state.
            arguments: small ones, which are pickled.
            memory_bytes_max: limit of the private memory of the process.

        Raises:
            PoolClosed: the pool was closed.
            ComputeProcessDied: the process ended in `make_state`.
            Exception: what `make_state` raises.
        """
        session = await self._start_session(make_state, arguments, memory_bytes_max)
        try:
            yield session
        finally:
            await session.close()

    def close(self) -> None:
        """Accept no more calls; running ones end at their next `yield_gil`."""
        if self._processes is not None:
            self._processes.close()
        self._pool.close()

    async def _start_session(
        self,
        make_state: Callable[[*Arguments], State],
        arguments: tuple[*Arguments],
        memory_bytes_max: int,
    ) -> ComputeSession[State]:
        if self._processes is not None:
            session: ProcessSession[State] = ProcessSession(self._processes, memory_bytes_max)
            try:
                await session.start(make_state, *arguments)
            except StartFailed as error:
                self._continue_without_processes(error)
            else:
                return session
        return ThreadSession(self, await self.run(make_state, *arguments))

    def _continue_without_processes(self, error: StartFailed) -> None:
        logger.warning("long calls share the lock of the event loop from now on: %s", error)
        self._processes = None

    def _tick_ended(self) -> None:
        self._spent = 0


def _in_short_intervals(call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    with SWITCH_INTERVAL.shortened():
        return call(*arguments)


def _map(
    call: Callable[[Buffer, *Arguments, Pause], Result],
    jobs: Sequence[tuple[Buffer, *Arguments]],
    pause: Pause,
) -> list[Result]:
    return [call(*job, pause) for job in jobs]
