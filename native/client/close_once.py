"""Closing: something is closed once, to its end, whoever asks for it and however often.

Rule: a caller that is cancelled does not stop it halfway; every other one waits for the same end.
Must not know: what is closed.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Self

from kledger.runtime.tasks import Supervisor


class CloseOnce:
    """Of one thing."""

    def __init__(self, supervisor: Supervisor, name: str) -> None:
        """Args: name: stands in the log if it goes wrong."""
        self._supervisor = supervisor
        self._name = name
        self._done: asyncio.Future[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether anybody has asked for it."""
        return self._done is not None

    async def run(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do the work, or wait for its end when somebody began it. Its error is the first one's."""
        if self._done is not None:
            await asyncio.shield(self._done)
            return
        self._done = asyncio.get_running_loop().create_future()
        await self._supervisor.finish(self._finish(work), f"closing of {self._name}")

    async def _finish(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await work()
        finally:
            assert self._done is not None, "finished without having begun"
            self._done.set_result(None)


class ClosesOnExit(ABC):
    """What is an asynchronous context manager only to be closed at its end."""

    @abstractmethod
    async def close(self) -> None:
        """Let go; may be repeated."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
