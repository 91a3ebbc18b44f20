"""CloseOnce: closes a resource once, although `close` may be called often and concurrently.

Rule: a cancelled caller does not interrupt the closing; every other caller waits for the same end.
Must not know: the resource.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Self

from kledger.runtime.tasks import Supervisor


class CloseOnce:
    """The closing of one resource."""

    def __init__(self, supervisor: Supervisor, name: str) -> None:
        """Args: name: of the resource, for the log."""
        self._supervisor = supervisor
        self._name = name
        self._done: asyncio.Future[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether `run` was called."""
        return self._done is not None

    async def run(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Close with `work`, or wait for the end of an earlier call; that one gets the error."""
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
    """An asynchronous context manager that only closes."""

    @abstractmethod
    async def close(self) -> None:
        """Close; may be repeated."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
