"""Turns: one at a time for each name.

Rule: whoever comes waits until all before him are through. A name costs memory only while somebody
is there for it, so names that nobody knows cannot pile up.
Must not know: what is done in a turn.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Turns:
    """The names for which somebody has, or waits for, a turn."""

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def __contains__(self, name: str) -> bool:
        return name in self._turns

    @asynccontextmanager
    async def take(self, name: str) -> AsyncIterator[None]:
        """Wait for the turn, and have it within."""
        turn = self._turns.get(name)
        if turn is None:
            turn = self._turns[name] = _Turn()
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[name]
