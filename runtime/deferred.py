"""Deferred: one result that may come later, for code that is no task.

Rule: resolved once. It has one listener, which `resolve` calls before it returns: the listener only
sets a flag and acts on it later. A coroutine awaits it instead; when that is cancelled,
`on_cancelled` is called.
Must not know: what the result is. Only awaiting needs the event loop.
"""

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar, cast

Result = TypeVar("Result")
Other = TypeVar("Other")


class Deferred(Generic[Result]):
    """A result with one listener; costs neither a task nor a tick of the event loop.

    Attributes:
        is_resolved: whether it has its result.
        on_cancelled: called when the awaiting coroutine is cancelled before it has its result.
    """

    __slots__ = ("_listener", "_make", "_value", "is_resolved", "on_cancelled")

    def __init__(self) -> None:
        self.is_resolved = False
        self.on_cancelled: Callable[[], None] | None = None
        self._listener: Callable[[], None] | None = None
        self._make: Callable[[Any], Any] | None = None
        self._value: Any = None

    @classmethod
    def resolved(cls, result: Result) -> "Deferred[Result]":
        """Return one that has its result."""
        deferred = cls()
        deferred.resolve(result)
        return deferred

    def resolve(self, result: Result) -> None:
        """Give the result."""
        assert not self.is_resolved, f"resolved twice, now with {result!r}"
        self._value = result
        self.is_resolved = True
        if self._listener is not None:
            # A listener often refers to this object: the next line breaks the cycle.
            listener, self._listener = self._listener, None
            listener()

    def when_resolved(self, listener: Callable[[], None]) -> None:
        """Call `listener` when it is resolved; it must not be resolved yet, nor have a listener."""
        assert not self.is_resolved, "it is resolved already"
        assert self._listener is None, "it has a listener already"
        self._listener = listener

    def mapped(self, make: Callable[[Result], Other]) -> "Deferred[Other]":
        """Replace the result by what `make` returns for it.

        `result` calls `make`, so that an exception of it never reaches the caller of `resolve`.
        """
        assert self._make is None, "mapped twice"
        self._make = make
        return cast("Deferred[Other]", self)

    def result(self) -> Result:
        """Return the result; it must be resolved."""
        assert self.is_resolved, "it is not resolved yet"
        value = self._value if self._make is None else self._make(self._value)
        return cast(Result, value)

    def __await__(self) -> Generator[Any, None, Result]:
        if not self.is_resolved:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_resolved(partial(_wake, waiter))
            try:
                yield from waiter
            except asyncio.CancelledError:
                self._abandon()
                raise
        return self.result()

    def _abandon(self) -> None:
        if not self.is_resolved and self.on_cancelled is not None:
            self.on_cancelled()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
