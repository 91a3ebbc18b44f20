"""ComputePool: runs long computations off the event loop, and short ones on it.

Rule: the cost of a call is an upper limit that its caller knows before it begins, so no field of a
request can make it look cheap. Many cheap calls in one tick block the event loop like a long one:
together they may cost no more than one.
Must not know: what is computed.
"""

import asyncio
from collections.abc import Callable

from kledger.runtime.blocking import Arguments, BlockingRunner, Result
from kledger.runtime.switch_interval import SWITCH_INTERVAL


class ComputePool:
    """Threads for long calls alone, so that no short call waits, and the allowance of each tick."""

    def __init__(self, pool: BlockingRunner, *, cost_per_tick_max: int) -> None:
        """Args: cost_per_tick_max: what calls on the loop may cost, in units of the callers."""
        self._pool = pool
        self._cost_per_tick_max = cost_per_tick_max
        self._spent = 0
        self.yield_gil = pool.yield_gil
        """See `BlockingRunner.yield_gil`; for calls that `run` makes."""

    def fits_in_tick(self, cost: int) -> bool:
        """Tell whether a call of that cost may be made on the loop now; if so, it is counted."""
        if self._spent + cost > self._cost_per_tick_max:
            return False
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._tick_ended)
        self._spent += cost
        return True

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Make a call in the pool; return or raise what it does. Raises PoolClosed."""
        return await self._pool.run(_in_short_intervals, call, *arguments)

    def close(self) -> None:
        """Accept no more calls; running ones end at their next `yield_gil`."""
        self._pool.close()

    def _tick_ended(self) -> None:
        self._spent = 0


def _in_short_intervals(call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    with SWITCH_INTERVAL.shortened():
        return call(*arguments)
