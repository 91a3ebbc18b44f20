"""FlowControl: bounds the requests of an application that are under way, and lets it wait.

Rule: callers enter in the order in which they came; beyond the limit they wait.
Must not know: what the requests are.
"""

import asyncio
from collections import deque

REQUESTS_MAX = 10_000
"""Requests under way at most, as a default."""


class FlowControl:
    """Of one publisher or subscriber.

    Attributes:
        backlog_max: how many requests may be under way; an application may change it.
    """

    def __init__(self, backlog_max: int = REQUESTS_MAX) -> None:
        self.backlog_max = backlog_max
        self._backlog = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._drained: list[asyncio.Future[None]] = []

    @property
    def backlog(self) -> int:
        """How many requests are under way."""
        return self._backlog

    @property
    def is_backlogged(self) -> bool:
        """Whether another request would have to wait."""
        return self._backlog >= self.backlog_max or bool(self._waiting)

    def try_enter(self) -> bool:
        """Count one request, unless it would have to wait."""
        if self._waiting or self._backlog >= self.backlog_max:
            return False
        self._backlog += 1
        return True

    async def enter(self) -> None:
        """Count one request; wait for room behind earlier callers."""
        if self.try_enter():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()  # it was counted already
            raise

    def leave(self) -> None:
        """Count one request less; let the next caller in."""
        self._backlog -= 1
        if not (self._waiting or self._drained):
            return
        while self._waiting and self._backlog < self.backlog_max:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._backlog += 1
                waiter.set_result(None)
        if not self._backlog:
            drained, self._drained = self._drained, []
            for each in drained:
                if not each.done():
                    each.set_result(None)

    async def drain(self) -> None:
        """Return when no request is under way."""
        while self._backlog:
            waiter = asyncio.get_running_loop().create_future()
            self._drained.append(waiter)
            await waiter
