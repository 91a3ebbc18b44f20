"""BlockingPool: threads for calls that the event loop must not wait in, and their stand-in.

Rule: a call that may block (files, a database, a sync) goes through a runner; it gets everything it
needs as arguments and touches no state of the loop. `InlinePool` does the same work at once, so
that a simulation has one thread and one order. A call that computes in Python for long holds the
interpreter's lock; it calls `yield_gil` every few tenths of a millisecond, or the loop stands
still.
Must not know: what is called.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

YIELD_GIL_S = 50e-6
"""Long enough for another thread to wake up and take the lock; without it, it would lose the race
for the lock against the thread that has just let go of it, again and again."""


class PoolClosed(RuntimeError):
    """The pool accepts no calls any more, and ends those that give way."""


class BlockingRunner(Protocol):
    """What callers know of either pool."""

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Make the call where it cannot hold up the loop; return or raise what it does."""
        ...

    def yield_gil(self) -> None:
        """Let the loop run; for calls in the pool that compute for long. Raises PoolClosed."""
        ...

    def close(self) -> None:
        """Let calls that began end, and accept no more. May be repeated."""
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
        """Let go of the interpreter's lock for long enough that another thread gets it."""
        if self._is_closed:
            raise PoolClosed("the pool was closed during a call")
        time.sleep(YIELD_GIL_S)

    def close(self) -> None:
        """Wait for the calls that began; those that give way end at once."""
        self._is_closed = True
        self._executor.shutdown(wait=True)


class InlinePool:
    """No threads: the call is made at once, by the caller."""

    def __init__(self) -> None:
        self._closed = False

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Make the call here; the loop turns once first, as it would with a thread."""
        if self._closed:
            raise PoolClosed("the pool is closed")
        await asyncio.sleep(0)
        return call(*arguments)

    def yield_gil(self) -> None:
        """There is nobody to give way to."""

    def close(self) -> None:
        """Accept no more calls."""
        self._closed = True
