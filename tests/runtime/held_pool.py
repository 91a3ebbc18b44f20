"""A pool whose calls end when a test says so, and which knows in which threads they were made."""

import asyncio
import threading
from collections.abc import Callable

from kledger.runtime.blocking import Arguments, BlockingPool, Result


class HeldPool:
    """A `BlockingRunner` with real threads; calls begin when `release` was called."""

    def __init__(self) -> None:
        self._pool = BlockingPool(1)
        self._released = asyncio.Event()
        self.waiting_count = 0
        self.threads: list[threading.Thread] = []

    def release(self) -> None:
        """Let all calls begin, now and later."""
        self._released.set()

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        self.waiting_count += 1
        await self._released.wait()
        self.waiting_count -= 1

        def noted() -> Result:
            self.threads.append(threading.current_thread())
            return call(*arguments)

        return await self._pool.run(noted)

    def yield_gil(self) -> None:
        self._pool.yield_gil()

    def close(self) -> None:
        self._pool.close()
