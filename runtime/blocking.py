"""BlockingPool: threads for calls that the event loop must not wait in, and their stand-in.

Rule: a call that may block (files, a database, a sync) goes through a runner; it gets everything it
needs as arguments and touches no state of the loop. `InlinePool` does the same work at once, so
that a simulation has one thread and one order.
Must not know: what is called.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class BlockingRunner(Protocol):
    """What callers know of either pool."""

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Make the call where it cannot hold up the loop; return or raise what it does."""
        ...

    def close(self) -> None:
        """Let calls that began end, and accept no more. May be repeated."""
        ...


class BlockingPool:
    """Real threads, started one by one when there is work for them."""

    def __init__(self, threads: int = 4) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="blocking")

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Make the call in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, call, *arguments)

    def close(self) -> None:
        """Wait for the calls that began."""
        self._executor.shutdown(wait=True)


class InlinePool:
    """No threads: the call is made at once, by the caller."""

    def __init__(self) -> None:
        self._closed = False

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Make the call here; the loop turns once first, as it would with a thread."""
        if self._closed:
            raise RuntimeError("the pool is closed")
        await asyncio.sleep(0)
        return call(*arguments)

    def close(self) -> None:
        """Accept no more calls."""
        self._closed = True
