"""Operations of a client: what its user waits for and must not wait for without end.

Rule: an operation ends within the operation timeout, with `Timeout`, and when the client is
closed, with `AlreadyClosed`; both may be tried again, the one by the same client. To end one is to
cancel it: what it has begun is let go as if its caller had cancelled it.
Must not know: what an operation does.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kledger.native.errors import AlreadyClosed, KledgerError, Timeout
from kledger.runtime.signal import Signal
from kledger.runtime.timers import Timers

OPERATION_TIMEOUT_MS = 30_000
"""How long an operation may take, as `operationTimeout` of Pulsar's clients."""


def no_error() -> KledgerError | None:
    """Say that nothing is known to have failed."""
    return None


@dataclass(eq=False, slots=True)
class ClientOperation:
    """One that runs.

    Attributes:
        what: stands in its error.
        task: which runs it.
        cancelling_before: how often the task had been cancelled when it began.
        last_error: tells what its last try has failed with.
        reason: why it was ended from outside.
    """

    what: str
    task: "asyncio.Task[Any]"
    cancelling_before: int
    last_error: Callable[[], KledgerError | None] = no_error
    reason: KledgerError | None = None

    def stop(self, reason: KledgerError) -> None:
        """End it from outside; the first reason counts."""
        if self.reason is None:
            self.reason = reason
            self.task.cancel()


class ClientOperations:
    """Those of one client."""

    def __init__(self, timers: Timers, timeout_ms: int = OPERATION_TIMEOUT_MS) -> None:
        """Args: timeout_ms: how long each may take."""
        self.timeout_ms = timeout_ms
        self._timers = timers
        self._running: dict[ClientOperation, None] = {}
        self._changed = Signal()
        self._is_closed = False

    @asynccontextmanager
    async def run(self, what: str) -> AsyncIterator[ClientOperation]:
        """Surround an operation of the current task.

        Args:
            what: stands in the error, like "subscribe to orders".

        Raises:
            Timeout: it took too long.
            AlreadyClosed: the client was closed, before or meanwhile.
        """
        if self._is_closed:
            raise AlreadyClosed(f"{what}: the client is closed")
        task = asyncio.current_task()
        assert task is not None, "an operation belongs to a task"
        operation = ClientOperation(what, task, task.cancelling())
        self._running[operation] = None
        timer = self._timers.call_after(self.timeout_ms, lambda: self._on_timeout(operation))
        try:
            yield operation
        except asyncio.CancelledError:
            if operation.reason is None or task.uncancel() > operation.cancelling_before:
                raise  # the caller has cancelled it, too
            raise operation.reason from None
        finally:
            timer.cancel()
            del self._running[operation]
            self._changed.notify()

    async def close(self) -> None:
        """End all that run, and wait for their end; none begins any more."""
        self._is_closed = True
        for operation in list(self._running):
            operation.stop(AlreadyClosed(f"{operation.what}: the client was closed"))
        current = asyncio.current_task()
        while any(each.task is not current for each in self._running):
            await self._changed.wait()

    def _on_timeout(self, operation: ClientOperation) -> None:
        last_error = operation.last_error()
        why = "" if last_error is None else f": {last_error}"
        operation.stop(Timeout(f"{operation.what}: not done within {self.timeout_ms} ms{why}"))
