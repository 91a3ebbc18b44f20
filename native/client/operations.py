"""ClientOperations: the calls of a client that have a time limit.

Rule: an operation fails with `Timeout` after the operation timeout, and with `AlreadyClosed` when
the client is closed. It is ended by cancelling its task, so it cleans up as if its caller had
cancelled it.
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
"""The limit of one operation, as `operationTimeout` of Pulsar's clients."""


def no_error() -> KledgerError | None:
    """Return None: no attempt has failed."""
    return None


@dataclass(eq=False, slots=True)
class ClientOperation:
    """One running operation.

    Attributes:
        what: its name in errors.
        task: the task that runs it.
        cancelling_before: the pending cancellations of the task when it began.
        last_error: returns the error of the last failed attempt.
        reason: the error that it was stopped with.
    """

    what: str
    task: "asyncio.Task[Any]"
    cancelling_before: int
    last_error: Callable[[], KledgerError | None] = no_error
    reason: KledgerError | None = None

    def stop(self, reason: KledgerError) -> None:
        """Cancel the operation, which then raises `reason`; the first reason counts."""
        if self.reason is None:
            self.reason = reason
            self.task.cancel()


class ClientOperations:
    """The running operations of one client."""

    def __init__(self, timers: Timers, timeout_ms: int = OPERATION_TIMEOUT_MS) -> None:
        """Args: timeout_ms: the limit of each operation."""
        self.timeout_ms = timeout_ms
        self._timers = timers
        self._running: dict[ClientOperation, None] = {}
        self._changed = Signal()
        self._is_closed = False

    @asynccontextmanager
    async def run(self, what: str) -> AsyncIterator[ClientOperation]:
        """Run the body as an operation of the current task.

        Args:
            what: its name in errors, like "subscribe to orders".

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
                raise  # the caller has cancelled the task, too
            raise operation.reason from None
        finally:
            timer.cancel()
            del self._running[operation]
            self._changed.notify()

    async def close(self) -> None:
        """Stop all running operations and wait for their end; refuse new ones."""
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
