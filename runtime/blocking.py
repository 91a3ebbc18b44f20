"""BlockingPool: threads for calls that the event loop must not wait in, and their stand-in.

Rule: a call that may block (files, a database, a sync) goes through a runner; it gets everything it
needs as arguments and touches no state of the loop. `InlinePool` does the same work at once, so
that a simulation has one thread and one order. A call that computes in Python for long holds the
GIL; it calls `yield_gil` every few tenths of a millisecond, or the event loop
stands still.
Must not know: what the calls do.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

YIELD_GIL_S = 50e-6
"""Long enough for another thread to wake up and take the lock; without the pause the thread that
has just released the lock takes it again first."""


class PoolClosed(RuntimeError):
    """The pool accepts no more calls, and ends running ones at their next `yield_gil`."""


class BlockingRunner(Protocol):
    """What both pools offer."""

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Make the call where it cannot hold up the loop; return or raise what it does."""
        ...

    def yield_gil(self) -> None:
        """Let the event loop run; for calls that compute for long. Raises PoolClosed."""
        ...

    def close(self) -> None:
        """Wait for running calls and accept no more. May be repeated."""
        ...


class BlockingPool:
    """Real threads, started one by one when there is work for them."""

    def __init__(self, threads: int = 4) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="blocking")
        self._is_closed = False

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Make the call in a thread."""
        if self._is_closed:
            raise PoolClosed("the pool is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, call, *arguments)

    def yield_gil(self) -> None:
        """Release the GIL for long enough that another thread gets it."""
        if self._is_closed:
            raise PoolClosed("the pool was closed during a call")
        time.sleep(YIELD_GIL_S)

    def close(self) -> None:
        """Wait for running calls; those that call `yield_gil` end there."""
        self._is_closed = True
        self._executor.shutdown(wait=True)


class InlinePool:
    """No threads: the call is made at once, by the caller."""

    def __init__(self) -> None:
        self._closed = False

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Make the call on the event loop, one tick later, as a thread would."""
        if self._closed:
            raise PoolClosed("the pool is closed")
        await asyncio.sleep(0)
        return call(*arguments)

    def yield_gil(self) -> None:
        """Do nothing: the caller is on the event loop."""

    def close(self) -> None:
        """Accept no more calls."""
        self._closed = True
