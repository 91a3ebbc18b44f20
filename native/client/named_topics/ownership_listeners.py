"""OwnershipListeners: notify an application of the channels that its subscriber owns.

Rule: `on_revoked` or `on_lost` comes before the `on_assigned` of the same change, which gets the
complete set. Calls come one after the other, in the order of the changes; what a listener raises is
logged and changes nothing.
Must not know: why ownership changed.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Sequence

from kledger.runtime.tasks import Supervisor

logger = logging.getLogger(__name__)

ASSIGNED, REVOKED, LOST = "on_assigned", "on_revoked", "on_lost"
CALLS_MAX = 1_000
"""Calls that wait for a slow listener; the oldest are left out beyond that."""


class OwnershipListeners:
    """The listeners of one subscriber: objects with some of the three methods."""

    def __init__(self, listeners: Sequence[object], supervisor: Supervisor) -> None:
        self._listeners = tuple(listeners)
        self._supervisor = supervisor
        self._calls: deque[tuple[str, frozenset[int]]] = deque(maxlen=CALLS_MAX)
        self._task: asyncio.Task[None] | None = None

    def call(self, method: str, channels: frozenset[int]) -> None:
        """Queue a call of ASSIGNED, REVOKED or LOST."""
        if self._listeners:
            self._calls.append((method, channels))
            if self._task is None:
                self._task = self._supervisor.spawn(self._run(), "ownership listeners")

    async def finish(self) -> None:
        """Wait until all queued calls have returned; a listener itself does not wait."""
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._calls:
                method, channels = self._calls.popleft()
                for listener in self._listeners:
                    await _call(listener, method, channels)
        finally:
            self._task = None


async def _call(listener: object, method: str, channels: frozenset[int]) -> None:
    function = getattr(listener, method, None)
    if function is None:
        return
    try:
        returned = function(channels)
        if inspect.isawaitable(returned):
            await returned
    except Exception:
        logger.exception("%s of %r raised; the subscriber goes on", method, listener)
